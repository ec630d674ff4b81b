-- Asks for the slots of a job in [from_at, to_at) once more; returns the backfill's id. Slots that are not decided yet
-- are left to the schedule. What is wrong is refused here, but for the number of slots: the leader counts them, and ends
-- a backfill that has none or too many with that as its error. The leader makes its runs, so no row policy judges their
-- priority: whoever is bound by a policy that an administrator made for new runs leaves it out.
CREATE OR REPLACE FUNCTION pgsched.backfill(job text, from_at timestamptz, to_at timestamptz, mode text DEFAULT 'missing',
    max_active integer DEFAULT 1, reverse boolean DEFAULT false, priority integer DEFAULT 9) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    j pgsched.jobs;
    decided timestamptz;
    problem text := coalesce(
        CASE WHEN backfill.from_at IS NULL THEN 'from_at: must not be null'
             WHEN backfill.to_at IS NULL THEN 'to_at: must not be null' END,
        pgsched.bad_instant('from_at', backfill.from_at),
        pgsched.bad_instant('to_at', backfill.to_at),
        CASE WHEN backfill.from_at >= backfill.to_at THEN
            format('to_at: %s is not later than %s', backfill.to_at, backfill.from_at) END,
        CASE WHEN backfill.to_at - backfill.from_at > interval '36525 days' THEN
            'to_at: the range is longer than 100 years: ask for a shorter one' END,
        pgsched.not_one_of('mode', backfill.mode, ARRAY['missing', 'failed', 'all']),
        pgsched.out_of_range('max_active', backfill.max_active, 1, 1000),
        pgsched.out_of_range('priority', backfill.priority, 0, 9),
        CASE WHEN backfill.reverse IS NULL THEN 'reverse: must not be null' END);
    bound_by name := CASE WHEN backfill.priority <> 9 THEN pgsched.bounding_policy() END;
    new_id bigint;
BEGIN
    SELECT * INTO j FROM pgsched.jobs WHERE name = backfill.job;
    IF problem IS NULL AND j.id IS NULL THEN
        PERFORM pgsched.refuse_unknown_job(backfill.job);
    END IF;
    PERFORM pgsched.refuse_others(format('job "%s"', j.name), j.owner) WHERE j.id IS NOT NULL;
    decided := least(clock_timestamp(), j.decided_until + interval '1 microsecond');
    problem := coalesce(problem,
        CASE WHEN coalesce(ltrim(j.schedule) ILIKE '@after%', true) THEN format(
                 'job: %s has no schedule whose past slots are known: only cron and @every have them', j.name)
             WHEN backfill.from_at >= decided THEN format(
                 'from_at: job %s is decided until %s: slots after that are the schedule''s to decide', j.name, decided)
        END);
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'backfills');
    END IF;
    IF bound_by IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = format('permission denied: the policy "%s"'
            ' bounds the runs of role "%s": leave out the priority of the backfill, which is 9 then', bound_by,
            pgsched.caller());
    END IF;
    INSERT INTO pgsched.backfills (job_id, job, schedule, timezone, anchor_at, from_at, to_at, mode, max_active,
        reverse, priority)
    VALUES (j.id, j.name, j.schedule, j.timezone, j.anchor_at, backfill.from_at, least(backfill.to_at, decided),
        backfill.mode, backfill.max_active, backfill.reverse, backfill.priority::smallint)
    RETURNING id INTO new_id;
    PERFORM pgsched.notify('pgsched_leader', 'backfills');
    RETURN new_id;
END $$;
