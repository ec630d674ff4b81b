-- Sets the mark of a job that lies ahead of the clock (a clock that was wrong, a restored server) back to now, or to the
-- newest slot that has a row, whichever is later: no slot that may have run comes again. Returns the new mark; NULL: there
-- is no such job.
CREATE OR REPLACE FUNCTION pgsched.reset_mark(job text) RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    j pgsched.jobs;
    mark timestamptz;
    before text := coalesce(current_setting('pgsched.lowers_mark', true), '');
BEGIN
    PERFORM pgsched.refuse_others(format('job "%s"', o.name), o.owner) FROM pgsched.jobs o WHERE o.name = reset_mark.job;
    SELECT * INTO j FROM pgsched.jobs WHERE name = reset_mark.job FOR NO KEY UPDATE;
    IF j.id IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.refuse_others(format('job "%s"', j.name), j.owner);
    -- behind the lock: nobody decides a slot of this job meanwhile
    mark := greatest(clock_timestamp(), pgsched.newest_slot(j.id));
    IF mark >= j.decided_until THEN
        RETURN j.decided_until;
    END IF;
    PERFORM set_config('pgsched.lowers_mark', 'on', true);
    -- shifts: nominal slots ahead of the clock count as undecided again
    UPDATE pgsched.jobs SET decided_until = mark, shifts = NULL,
        next_run_at = CASE WHEN schedule IS NULL OR error IS NOT NULL THEN next_run_at ELSE clock_timestamp() END
    WHERE id = j.id;
    PERFORM set_config('pgsched.lowers_mark', before, true);
    PERFORM pgsched.note('mark reset', 'job', j.name,
        jsonb_build_object('decided_until', jsonb_build_array(j.decided_until, mark)));
    PERFORM pgsched.notify('pgsched_leader', 'jobs');
    RETURN mark;
END $$;
