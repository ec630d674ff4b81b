-- run_watch: where a run is, as somebody sees who watches it.
-- params: id bigint
-- returns: one row, or none; progress is null unless the attempt that runs, or ran last, told it
-- locks: none
SELECT r.id, r.state, r.kind, r.task, r.queue, j.name AS job, r.attempt, r.max_attempts, w.name AS worker,
    r.available_at, r.started_at, r.finished_at, r.reason, r.error, r.result, clock_timestamp() AS now,
    CASE WHEN (r.progress ->> 'attempt')::int = r.attempt THEN r.progress END AS progress
FROM pgsched.runs r LEFT JOIN pgsched.jobs j ON j.id = r.job_id LEFT JOIN pgsched.workers w ON w.id = r.worker_id
WHERE r.id = %(id)s
