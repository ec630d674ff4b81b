-- top_running: the runs that have been running for longest. They stand at the front of their queues, in which they were
-- claimed: of each queue and priority no more than `deep` runs are read, by the index that claims take.
-- params: n int, deep int, fronts int (so many queues and priorities at most)
-- returns: (id, state, job, task, kind, queue, attempt, max_attempts, started_at, worker, cancel_asked, progress: null
--          unless this attempt told it, now)
-- locks: none
WITH RECURSIVE front AS (
    (SELECT queue, priority FROM pgsched.runs WHERE phase = 2 ORDER BY queue, priority LIMIT 1)
    UNION ALL
    SELECT next.queue, next.priority FROM front f CROSS JOIN LATERAL (
        SELECT r.queue, r.priority FROM pgsched.runs r
        WHERE r.phase = 2 AND (r.queue, r.priority) > (f.queue, f.priority) ORDER BY r.queue, r.priority LIMIT 1
    ) next
)
SELECT r.id, r.state, j.name AS job, r.task, r.kind, r.queue, r.attempt, r.max_attempts, r.started_at, w.name AS worker,
    r.cancel_requested_at IS NOT NULL AS cancel_asked,
    CASE WHEN (r.progress ->> 'attempt')::int = r.attempt THEN r.progress END AS progress, clock_timestamp() AS now
FROM (
    SELECT one.* FROM (SELECT queue, priority FROM front LIMIT %(fronts)s) f CROSS JOIN LATERAL (
        SELECT * FROM pgsched.runs x WHERE x.phase = 2 AND x.queue = f.queue AND x.priority = f.priority
        ORDER BY x.queue, x.priority, x.available_at, x.id LIMIT %(deep)s
    ) one WHERE one.state = 'running' ORDER BY one.started_at, one.id LIMIT %(n)s
) r LEFT JOIN pgsched.jobs j ON j.id = r.job_id LEFT JOIN pgsched.workers w ON w.id = r.worker_id
ORDER BY r.started_at, r.id
