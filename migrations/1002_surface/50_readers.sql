-- What a person at psql, or a program in any language, reads of jobs and runs. All have the caller's rights: row security
-- decides whose jobs and runs it sees. All are bounded, and find rows by an index (tests/integration/db/test_plans.py).

-- The job of this name; an unknown name is refused with similar ones.
CREATE FUNCTION pgsched.job_named(job text) RETURNS pgsched.jobs
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    j pgsched.jobs;
BEGIN
    SELECT * INTO j FROM pgsched.jobs o WHERE o.name = job_named.job;
    IF NOT FOUND THEN
        PERFORM pgsched.refuse_unknown_job(job);
    END IF;
    RETURN j;
END $$;

-- Refuses a number of rows that is not between 1 and `most`; `more` says where to get more.
CREATE FUNCTION pgsched.refuse_many(n integer, most integer, more text DEFAULT '') RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := pgsched.out_of_range('n', n, 1, most);
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem || more, 'runs');
    END IF;
END $$;

-- Why no slot of a job is decided: it is paused, in error, or over; null where slots are decided.
CREATE FUNCTION pgsched.job_stands(j pgsched.jobs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT nullif(concat_ws('; ',
        CASE WHEN j.paused THEN format('paused by %s since %s%s; no slots until it is resumed', j.paused_by, pgsched.utc(j.paused_at),
                                       coalesce(': ' || nullif(j.paused_reason, ''), '')) END,
        CASE WHEN j.error IS NOT NULL THEN format('in error: %s; no slots until it is changed', j.error)
             WHEN j.next_run_at IS NOT NULL THEN NULL
             WHEN j.schedule IS NULL THEN 'its one slot is decided'
             WHEN j.run_count >= j.max_runs THEN format('it has had all its runs: its max_runs is %s', j.max_runs)
             WHEN j.ends_at IS NOT NULL THEN 'it has ended: its ends_at is ' || pgsched.utc(j.ends_at)
             ELSE 'its schedule has no more slots' END), '')
$$;

-- The next slots of a job, at most the 10 that the leader keeps for sure: the instant, the clock in the job's zone, and
-- what is known of it. A job without slots to show has one row that says why.
CREATE FUNCTION pgsched.preview(job text, n integer DEFAULT 5) RETURNS TABLE (slot timestamptz, local text, note text)
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

-- That no process leads, behind this text; an empty text where one does.
CREATE FUNCTION pgsched.no_leader(beginning text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN EXISTS (SELECT FROM pgsched.leader l WHERE l.resigned_at IS NULL
                             AND l.seen_at > clock_timestamp() - interval '5 seconds') THEN ''
        ELSE beginning || 'no process leads now (start a pgsched worker)' END
$$;

-- When the first attempt of a run began.
CREATE FUNCTION pgsched.first_start(run_id bigint, started_at timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT least(started_at, (SELECT min(a.started_at) FROM pgsched.attempts a WHERE a.run_id = $1))
$$;

-- The newest runs of a job, by slot; or the newest runs of all, of the newest 100,000 those that the caller may see.
CREATE FUNCTION pgsched.recent_runs(job text DEFAULT NULL, n integer DEFAULT 20)
RETURNS TABLE (run bigint, of_job text, task text, slot timestamptz, state text, started timestamptz, finished timestamptz,
               took interval, late interval, attempts integer, worker text, why text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    found_id bigint;
    -- row security is a filter: without this bound a role with few runs would read all that there are
    above bigint := CASE WHEN row_security_active('pgsched.runs')
        THEN coalesce(pg_sequence_last_value('pgsched.runs_id_seq'), 0) - 100000 ELSE 0 END;
BEGIN
    PERFORM pgsched.refuse_many(recent_runs.n, 1000);
    IF recent_runs.job IS NOT NULL THEN
        found_id := (pgsched.job_named(recent_runs.job)).id;
        RETURN QUERY SELECT f.* FROM (
            SELECT r.id FROM pgsched.runs r WHERE r.job_id = found_id
            ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT recent_runs.n) i
            CROSS JOIN LATERAL pgsched.run_figures(i.id) f ORDER BY f.slot DESC;
    ELSE
        RETURN QUERY SELECT f.* FROM (
            SELECT r.id FROM pgsched.runs r WHERE r.id > above ORDER BY r.id DESC LIMIT recent_runs.n) i
            CROSS JOIN LATERAL pgsched.run_figures(i.id) f ORDER BY f.run DESC;
    END IF;
END $$;

-- One run as recent_runs shows it.
CREATE FUNCTION pgsched.run_figures(id bigint)
RETURNS TABLE (run bigint, of_job text, task text, slot timestamptz, state text, started timestamptz, finished timestamptz,
               took interval, late interval, attempts integer, worker text, why text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.id, (SELECT j.name FROM pgsched.jobs j WHERE j.id = r.job_id), left(r.task, 200), r.scheduled_at, r.state,
        r.started_at, r.finished_at, coalesce(r.finished_at, clock_timestamp()) - r.started_at,
        CASE WHEN r.origin = 'schedule' THEN pgsched.first_start(r.id, r.started_at) - r.scheduled_at END, r.attempt,
        (SELECT w.name FROM pgsched.workers w WHERE w.id = r.worker_id),
        left(split_part(coalesce(r.error, r.reason), E'\n', 1), 1000)
    FROM pgsched.runs r WHERE r.id = run_figures.id
$$;

-- One row for each job, by name: what it does now, and what became of its newest slot.
CREATE FUNCTION pgsched.job_status(job text DEFAULT NULL, n integer DEFAULT 1000)
RETURNS TABLE (name text, state text, paused_by text, paused_reason text, next_slot timestamptz, last_run bigint, last_slot timestamptz,
               last_state text, late interval, running bigint, queued bigint, failures bigint, error text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    named text := CASE WHEN job_status.job IS NOT NULL THEN (pgsched.job_named(job_status.job)).name END;
BEGIN
    PERFORM pgsched.refuse_many(job_status.n, 10000);
    RETURN QUERY
    SELECT j.name, CASE WHEN j.paused THEN 'paused' WHEN j.error IS NOT NULL THEN 'error'
                        WHEN j.next_run_at IS NULL THEN 'done' ELSE 'active' END,
        j.paused_by, j.paused_reason, pgsched.next_slot(j), last.id, last.scheduled_at, last.state,
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

-- The slot of a job that comes next and is to run; null where none is known.
CREATE FUNCTION pgsched.next_slot(j pgsched.jobs) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN j.paused OR j.error IS NOT NULL OR j.next_run_at IS NULL THEN NULL
        WHEN ltrim(j.schedule, E' \t') ILIKE '@after%' THEN
            -- while a run is open it is when the leader looks again, and no slot
            CASE WHEN NOT EXISTS (SELECT FROM pgsched.runs r WHERE r.job_id = j.id AND r.phase < 3 /* open */)
                 AND j.next_run_at > clock_timestamp() THEN j.next_run_at END
        ELSE (SELECT k.slot FROM pgsched.known_slots(j) k WHERE k.excluded IS NULL ORDER BY k.slot LIMIT 1) END
$$;

-- The slots of a job in a stretch of time that are decided, newest first: one row for a slot, or for the slots of a
-- stretch that have one row in pgsched.runs. `slots`: how many they are; null: not counted yet.
CREATE FUNCTION pgsched.slots(job text, since timestamptz, until timestamptz DEFAULT now(), n integer DEFAULT 1000)
RETURNS TABLE (first_slot timestamptz, last_slot timestamptz, slots bigint, state text, run bigint, reason text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    j pgsched.jobs := pgsched.job_named(slots.job);
    problem text := CASE WHEN slots.since IS NULL THEN 'since: must not be null' WHEN slots.until IS NULL THEN 'until: must not be null' END;
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    PERFORM pgsched.refuse_many(slots.n, 10000);
    RETURN QUERY
    WITH found AS (
        (SELECT r.id, r.scheduled_at, r.covers_from, r.covers_until, r.covers_count, r.covers_state, r.covers_reason, r.state,
             coalesce(r.reason, split_part(r.error, E'\n', 1)) AS reason
         FROM pgsched.runs r WHERE r.job_id = j.id AND r.scheduled_at BETWEEN slots.since AND slots.until
         ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT slots.n)
        -- Stretches that reach into this time: their row has one of their slots, which may lie outside. Of runs that a
        -- person made all are read until the first other row, without a bound, as in row_of_slot.
        UNION ALL
        SELECT o.* FROM (
            (SELECT r.id, r.scheduled_at, r.covers_from, r.covers_until, r.covers_count, r.covers_state, r.covers_reason, r.state,
                 coalesce(r.reason, split_part(r.error, E'\n', 1))
             FROM pgsched.runs r WHERE r.job_id = j.id AND r.scheduled_at > slots.until ORDER BY r.job_id, r.scheduled_at LIMIT 1000)
            UNION ALL
            (SELECT r.id, r.scheduled_at, r.covers_from, r.covers_until, r.covers_count, r.covers_state, r.covers_reason, r.state,
                 coalesce(r.reason, split_part(r.error, E'\n', 1))
             FROM pgsched.runs r WHERE r.job_id = j.id AND r.scheduled_at < slots.since
                 AND (r.origin = 'schedule' OR r.covers_from IS NOT NULL)
             ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 1)) o
        WHERE o.covers_from <= slots.until AND o.covers_until >= slots.since
    )
    SELECT s.* FROM (
        SELECT coalesce(f.covers_from, f.scheduled_at) AS first_slot,
            greatest(f.covers_until, f.scheduled_at) AS last_slot, coalesce(f.covers_count, 1), f.state, f.id, f.reason
        FROM found f WHERE f.covers_state IS NULL
        UNION ALL  -- a row that was revived for its own slot stands for the others as it was before
        SELECT f.scheduled_at, f.scheduled_at, 1, f.state, f.id, f.reason FROM found f
        WHERE f.covers_state IS NOT NULL AND f.scheduled_at BETWEEN slots.since AND slots.until
        UNION ALL
        SELECT f.covers_from, f.covers_until, f.covers_count, f.covers_state, f.id, f.covers_reason FROM found f
        WHERE f.covers_state IS NOT NULL
        UNION ALL
        SELECT CASE WHEN p.schedule IS NULL THEN p.until_at ELSE p.after_at END, p.until_at, CASE WHEN p.schedule IS NULL THEN 1 END,
            p.state, NULL, p.reason || '. The leader has not recorded it yet'
        FROM pgsched.passed_over p WHERE p.job_id = j.id AND p.after_at < slots.until AND p.until_at >= slots.since
    ) s ORDER BY s.last_slot DESC, s.first_slot LIMIT slots.n;
END $$;

COMMENT ON FUNCTION pgsched.preview IS 'The next slots of a job, at most 10: when, in the job''s zone, and what is known of each.';
COMMENT ON FUNCTION pgsched.recent_runs IS 'The newest runs, at most 1,000: of a job by slot, or all that the caller may see.';
COMMENT ON FUNCTION pgsched.job_status IS
    'One row for each job: its next slot, its newest run, how many runs are open, how many in a row failed.';
COMMENT ON FUNCTION pgsched.slots IS 'What became of the slots of a job: one row for each slot, or stretch of slots, that is decided.';
