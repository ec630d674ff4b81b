-- The next slots of jobs, for readers. SQL cannot compute slots: the leader does (pgsched/leader/duties/next_slots.py). It keeps
-- them here and not in pgsched.jobs, whose rows the tick copies each time that a job fires. No statement of the tick
-- reads or writes this table.

-- Slots of a schedule. They hold for its job while the job has this schedule, zone and anchor: an edit makes the row
-- worthless without a write. There is no foreign key: the leader would wait for whoever deletes a job.
CREATE TABLE pgsched.next_slots (
    job_id     bigint PRIMARY KEY,
    schedule   text NOT NULL,
    timezone   text NOT NULL,
    anchor_at  timestamptz NOT NULL,
    after_at   timestamptz NOT NULL,
    slots      timestamptz[] NOT NULL,
    offsets    integer[] NOT NULL,
    rules      text NOT NULL,
    refresh_at timestamptz,
    CONSTRAINT next_slots_few CHECK (cardinality(slots) <= 100 AND cardinality(offsets) = cardinality(slots))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

COMMENT ON TABLE pgsched.next_slots IS 'The next slots of each job with a schedule, as the leader computed them: pgsched.preview.';
COMMENT ON COLUMN pgsched.next_slots.after_at IS 'They are all slots of the schedule after this instant, up to the last of them.';
COMMENT ON COLUMN pgsched.next_slots.offsets IS 'What the job''s zone is ahead of UTC at each slot, in seconds.';
COMMENT ON COLUMN pgsched.next_slots.rules IS 'The release of the time zone rules by which they were computed.';
COMMENT ON COLUMN pgsched.next_slots.refresh_at IS 'When the leader computes further ones; NULL: the schedule has none.';

-- An instant as a person reads it, `east` of UTC: Sun 2026-03-29 03:30:00 +02:00.
CREATE FUNCTION pgsched.wall_clock(moment timestamptz, east interval) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT to_char((moment AT TIME ZONE 'UTC') + east, 'Dy YYYY-MM-DD HH24:MI:SS')
        || CASE WHEN east < '0' THEN ' -' ELSE ' +' END
        || to_char(make_interval(secs => abs(extract(epoch FROM east))::float8), 'HH24:MI')
$$;

-- What a zone is ahead of UTC at an instant, by the rules of this server; zero where it does not know the zone. For
-- instants that a person chose: at slots of a schedule the leader says it (next_slots.offsets).
CREATE FUNCTION pgsched.east_of_utc(moment timestamptz, zone text) RETURNS interval
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (moment AT TIME ZONE zone) - (moment AT TIME ZONE 'UTC');
EXCEPTION WHEN invalid_parameter_value OR datetime_field_overflow THEN
    RETURN interval '0';
END $$;

-- Why nothing runs on a date of a job: "excluded date 2026-12-25: Christmas"; null where it may.
CREATE FUNCTION pgsched.excluded_date(job_id bigint, day date) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN c.from_date = c.until_date THEN 'excluded date ' || to_char(c.from_date, 'YYYY-MM-DD')
                ELSE format('excluded dates %s to %s', to_char(c.from_date, 'YYYY-MM-DD'), to_char(c.until_date, 'YYYY-MM-DD')) END
        || coalesce(': ' || nullif(c.reason, ''), '')
    FROM pgsched.job_calendars c
    WHERE c.job_id = excluded_date.job_id AND c.from_date <= excluded_date.day AND c.until_date >= excluded_date.day
    ORDER BY c.from_date LIMIT 1
$$;

-- The undecided slots of a job that are known: those that the leader keeps, up to the job's end; or run_at of a job that
-- runs once. `excluded`: why the slot will be skipped; null where it will not.
CREATE FUNCTION pgsched.known_slots(j pgsched.jobs) RETURNS TABLE (slot timestamptz, east interval, excluded text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.slot, s.east, pgsched.excluded_date(j.id, ((s.slot AT TIME ZONE 'UTC') + s.east)::date)
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
