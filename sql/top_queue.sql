-- top_queue: the runs of a queue that run or may, in the order in which they are claimed.
-- params: queue text, n int
-- returns: (id, state, job, task, kind, queue, priority, attempt, max_attempts, available_at, started_at, now)
-- locks: none
SELECT r.id, r.state, j.name AS job, r.task, r.kind, r.queue, r.priority, r.attempt, r.max_attempts, r.available_at,
    r.started_at, clock_timestamp() AS now
FROM (SELECT * FROM pgsched.runs WHERE phase = 2 AND queue = %(queue)s
      ORDER BY queue, priority, available_at, id LIMIT %(n)s) r
LEFT JOIN pgsched.jobs j ON j.id = r.job_id ORDER BY r.priority, r.available_at, r.id
