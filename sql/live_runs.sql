-- live_runs: the newest runs for a live view.
-- params: n int
-- returns: (id, name, state, scheduled_at, attempt, max_attempts, late_s, took_s, detail)
-- locks: none
SELECT r.id, coalesce(j.name, r.task) AS name, r.state, r.scheduled_at, r.attempt, r.max_attempts,
    extract(epoch FROM r.started_at - coalesce(r.scheduled_at, r.created_at))::float8 AS late_s,
    extract(epoch FROM r.finished_at - r.started_at)::float8 AS took_s,
    coalesce(r.error, r.reason, r.result::text) AS detail
FROM (SELECT * FROM pgsched.runs ORDER BY id DESC LIMIT %(n)s) r LEFT JOIN pgsched.jobs j ON j.id = r.job_id
ORDER BY r.id DESC
