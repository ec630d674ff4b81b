-- Nothing is lost in silence: slots that an edit or a resume passes over are written down before anybody forgets them.

CREATE FUNCTION pgsched.utc(moment timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
$$;

-- Slots that were due but undecided when a job was edited or resumed will not run, and are not lost in silence: the
-- leader, who alone can read schedules, turns the stretch into one row (pgsched.passed_over, leader/skipped_slots.py).
CREATE FUNCTION pgsched.pass_over(j pgsched.jobs, moment timestamptz, edited boolean) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO pgsched.passed_over (job_id, schedule, timezone, anchor_at, after_at, until_at, state, reason)
    SELECT j.id, j.schedule, j.timezone, j.anchor_at, j.decided_until, least(moment, j.ends_at),
        CASE WHEN j.paused THEN 'skipped' ELSE 'missed' END,
        CASE WHEN j.paused THEN format('paused since %s by %s%s%s', pgsched.utc(j.paused_at), j.paused_by,
                                       coalesce(': ' || j.paused_reason, ''),
                                       CASE WHEN edited THEN '; then the schedule was edited' ELSE '' END)
             ELSE 'the schedule was edited before this slot was decided' END
    WHERE j.schedule IS NOT NULL AND j.error IS NULL AND j.next_run_at <= moment
      AND j.decided_until < least(moment, j.ends_at)
$$;
