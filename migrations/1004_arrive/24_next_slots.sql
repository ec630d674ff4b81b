-- The undecided slots of a job that are known: those that the leader keeps, up to the job's end; or run_at of a job that
-- runs once. `excluded`: why the slot will be skipped, an excluded date or the mode shadow; null where it will not.
CREATE OR REPLACE FUNCTION pgsched.known_slots(j pgsched.jobs) RETURNS TABLE (slot timestamptz, east interval, excluded text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.slot, s.east, coalesce(pgsched.excluded_date(j.id, ((s.slot AT TIME ZONE 'UTC') + s.east)::date),
        CASE WHEN j.mode = 'shadow' THEN 'shadow' END)
    FROM (
        SELECT u.slot, make_interval(secs => u.seconds) AS east
        FROM pgsched.next_slots k CROSS JOIN LATERAL unnest(k.slots, k.offsets) u(slot, seconds)
        WHERE k.job_id = j.id AND (k.schedule, k.timezone, k.anchor_at) = (j.schedule, j.timezone, j.anchor_at)
        UNION ALL
        SELECT j.run_at, pgsched.east_of_utc(j.run_at, j.timezone)
        WHERE j.schedule IS NULL AND j.run_at IS NOT NULL AND j.next_run_at IS NOT NULL
    ) s
    WHERE s.slot > j.decided_until AND (j.starts_at IS NULL OR s.slot >= j.starts_at)
        AND (j.ends_at IS NULL OR s.slot <= j.ends_at) AND isfinite(s.slot)
    ORDER BY s.slot
$$;
