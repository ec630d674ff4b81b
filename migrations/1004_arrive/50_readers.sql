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
