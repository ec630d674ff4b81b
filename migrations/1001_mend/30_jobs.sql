CREATE OR REPLACE FUNCTION pgsched.jobs_notify() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.notify('pgsched_leader', 'jobs');
    RETURN NULL;
END $$;

-- The high-water mark only rises, whoever writes it: a restored old row or a clock that stepped back must not
-- make a slot fire twice. pgsched.reset_mark alone lowers it, and no further than to now and to the newest slot that has a
-- row.
CREATE OR REPLACE FUNCTION pgsched.jobs_high_water_mark() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(current_setting('pgsched.lowers_mark', true), '') <> 'on' THEN
        NEW.decided_until := OLD.decided_until;
    ELSE
        NEW.decided_until := least(OLD.decided_until,
            greatest(NEW.decided_until, clock_timestamp(), pgsched.newest_slot(NEW.id)));
    END IF;
    RETURN NEW;
END $$;

-- The edit as it may be written; what is wrong with it is raised. Arguments that stay are not judged again: an older release
-- may have taken what is refused now, and such a job can still be paused.
CREATE OR REPLACE FUNCTION pgsched.edit_allowed(was pgsched.jobs, j pgsched.jobs) RETURNS pgsched.jobs
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    judged pgsched.jobs;
    problem text;
BEGIN
    IF j.schedule IS NOT NULL AND was.schedule IS NULL AND j.run_at IS NOT DISTINCT FROM was.run_at THEN
        j.run_at := NULL;  -- a job that was to run once gets a schedule; the insert may have filled run_at in
    END IF;
    judged := j;
    IF (j.kind, j.args) IS NOT DISTINCT FROM (was.kind, was.args) THEN
        judged.args := '{}';
    END IF;
    problem := pgsched.job_error(judged);
    IF j.owner IS DISTINCT FROM was.owner THEN
        problem := coalesce(problem, pgsched.bad_owner(j.owner));
    ELSIF (j.kind, j.task, j.args) IS DISTINCT FROM (was.kind, was.task, was.args)
          AND pgsched.bad_owner(was.owner) IS NOT NULL THEN
        j.owner := pgsched.caller();  -- who says what runs, and may not act for the owner, becomes it
    END IF;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'jobs');
    END IF;
    RETURN j;
END $$;
