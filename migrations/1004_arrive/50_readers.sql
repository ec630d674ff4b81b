-- What a person at psql, or a program in any language, reads of jobs.

-- One row for each job, by name: what it does now, and what became of its newest slot.
CREATE OR REPLACE FUNCTION pgsched.job_status(job text DEFAULT NULL, n integer DEFAULT 1000)
RETURNS TABLE (name text, state text, paused_by text, paused_reason text, next_slot timestamptz, last_run bigint, last_slot timestamptz,
               last_state text, late interval, running bigint, queued bigint, failures bigint, error text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    named text := CASE WHEN job_status.job IS NOT NULL THEN (pgsched.job_named(job_status.job)).name END;
BEGIN
    PERFORM pgsched.refuse_many(job_status.n, 10000);
    RETURN QUERY
    SELECT j.name, pgsched.job_state(j), j.paused_by, j.paused_reason, pgsched.next_slot(j), last.id, last.scheduled_at, last.state,
        CASE WHEN last.origin = 'schedule' THEN pgsched.first_start(last.id, last.started_at) - last.scheduled_at END,
        open.running, open.queued, failed.n, j.error
    FROM (SELECT o.* FROM pgsched.jobs o WHERE o.name >= coalesce(named, '')
          ORDER BY o.name LIMIT CASE WHEN named IS NULL THEN job_status.n ELSE 1 END) j
    LEFT JOIN LATERAL (
        SELECT r.id, r.scheduled_at, r.state, r.origin, r.started_at FROM pgsched.runs r WHERE r.job_id = j.id
        ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 1) last ON true
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE c.state = 'running') AS running, count(*) FILTER (WHERE c.state <> 'running') AS queued
        FROM (SELECT r.state FROM pgsched.runs r WHERE r.job_id = j.id AND r.phase < 3 /* open */ LIMIT 1000) c) open
    CROSS JOIN LATERAL (
        SELECT count(*) AS n FROM (
            SELECT bool_or(e.state = 'succeeded') OVER (ORDER BY e.scheduled_at DESC) AS is_over FROM (
                SELECT r.state, r.scheduled_at, r.origin FROM pgsched.runs r WHERE r.job_id = j.id
                ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 100) e
            WHERE e.state IN ('succeeded', 'dead') AND e.origin <> 'backfill') f WHERE NOT f.is_over) failed
    ORDER BY j.name;
END $$;

-- The next slots of a job, at most the 10 that the leader keeps for sure: the instant, the clock in the job's zone, and
-- what is known of it. A job without slots to show has one row that says why.
CREATE OR REPLACE FUNCTION pgsched.preview(job text, n integer DEFAULT 5) RETURNS TABLE (slot timestamptz, local text, note text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    j pgsched.jobs := pgsched.job_named(preview.job);
    why text := pgsched.job_stands(j);
BEGIN
    PERFORM pgsched.refuse_many(preview.n, 10, ': `pgsched job preview` shows more');
    IF why IS NULL AND ltrim(j.schedule, E' \t') ILIKE '@after%' THEN
        why := 'its slots depend on when runs end, so none can be foreseen';
    END IF;
    IF why IS NULL THEN
        RETURN QUERY
        WITH ahead AS (
            SELECT k.*, count(*) FILTER (WHERE k.excluded IS NULL) OVER w AS runs_so_far,
                row_number() OVER w AS place, count(*) OVER () AS places
            FROM pgsched.known_slots(j) k WINDOW w AS (ORDER BY k.slot)
        )
        SELECT a.slot, pgsched.wall_clock(a.slot, a.east), nullif(concat_ws('; ',
            CASE WHEN a.slot <= clock_timestamp() THEN 'it is due, and not decided yet' END,
            'it will be skipped: ' || a.excluded,
            'the schedule has it at ' || pgsched.wall_clock(a.nominal, pgsched.east_of_utc(a.nominal, j.timezone)),
            CASE WHEN j.run_count + a.runs_so_far = j.max_runs AND a.excluded IS NULL
                 THEN format('the last one: the max_runs of the job is %s', j.max_runs)
                 WHEN j.schedule IS NOT NULL AND a.place = a.places AND EXISTS (
                     SELECT FROM pgsched.next_slots k WHERE k.job_id = j.id
                     AND (k.refresh_at IS NULL OR k.slots[cardinality(k.slots)] > j.ends_at))
                 THEN coalesce('the last one: the ends_at of the job is ' || pgsched.utc(j.ends_at), 'the last one of the schedule')
                 END), '')
        FROM ahead a
        -- a slot on an excluded date is no run: those behind the last run are left out with it
        WHERE j.max_runs IS NULL OR j.run_count + a.runs_so_far < j.max_runs
            OR j.run_count + a.runs_so_far = j.max_runs AND a.excluded IS NULL
        ORDER BY a.slot LIMIT preview.n;
        IF FOUND THEN
            RETURN;
        END IF;
        why := 'not planned yet: no slot of this schedule is known' || pgsched.no_leader('; ');
    END IF;
    RETURN QUERY SELECT NULL::timestamptz, NULL::text, why;
END $$;
