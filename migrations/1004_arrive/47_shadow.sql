-- Jobs in mode shadow: their slots are decided and recorded as skipped, with the reason shadow; nothing runs.

-- What a job does now, as the first of these that holds: paused, in error, done (no slot is left), shadow, active.
CREATE FUNCTION pgsched.job_state(j pgsched.jobs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN j.paused THEN 'paused' WHEN j.error IS NOT NULL THEN 'error' WHEN j.next_run_at IS NULL THEN 'done'
                WHEN j.mode = 'shadow' THEN 'shadow' ELSE 'active' END
$$;

-- The job as it is once it leaves mode shadow: slots that are due and not decided yet were still in that mode. They are
-- passed over, so that none of them runs, not by catch-up either. A job in error has no slots until it is edited.
CREATE FUNCTION pgsched.leave_shadow(j pgsched.jobs, moment timestamptz) RETURNS pgsched.jobs
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    begun timestamptz := greatest(j.decided_until, j.starts_at - interval '1 microsecond',
        CASE WHEN j.schedule IS NULL THEN j.run_at - interval '1 microsecond' END);
    ended timestamptz := least(moment, j.ends_at, CASE WHEN j.schedule IS NULL THEN j.run_at END);
BEGIN
    IF j.next_run_at IS NULL OR j.next_run_at > moment OR begun >= ended THEN
        RETURN j;
    END IF;
    INSERT INTO pgsched.passed_over (job_id, schedule, timezone, anchor_at, after_at, until_at, state, reason,
        calendar, on_excluded, shifts)
    VALUES (j.id, j.schedule, j.timezone, j.anchor_at, begun, ended, 'skipped', 'shadow',
        j.calendar, j.on_excluded, j.shifts);
    j.decided_until := ended;
    j.next_run_at := CASE WHEN j.schedule IS NOT NULL THEN moment END;
    RETURN j;
END $$;
