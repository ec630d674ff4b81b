-- status_open: the unfinished runs by queue and state, queued ones also by what they need and whether any live worker
-- offers it. One pass over at most n open runs of each phase, through its partial index.
-- params: n int
-- returns: (queue, state, kind, task: of python runs, n, oldest_s: age of the oldest since it could start, offered)
-- locks: none
WITH alive AS MATERIALIZED (
    SELECT queues, kinds, tasks FROM pgsched.workers
    WHERE stopped_at IS NULL AND stopping_at IS NULL AND seen_at > clock_timestamp() - lease
), open AS (
    SELECT queue, state, CASE WHEN state = 'queued' THEN kind END AS kind,
        CASE WHEN state = 'queued' AND kind = 'python' THEN task END AS task,
        count(*) AS n, min(CASE WHEN state = 'running' THEN started_at ELSE available_at END) AS oldest_at
    FROM ((SELECT queue, state, kind, task, available_at, started_at FROM pgsched.runs WHERE phase = 2 LIMIT %(n)s)
          UNION ALL
          (SELECT queue, state, kind, task, available_at, started_at FROM pgsched.runs WHERE phase = 1 LIMIT %(n)s)
          UNION ALL
          (SELECT queue, state, kind, task, available_at, started_at FROM pgsched.runs
           WHERE phase = 0 AND ready_at IS NULL LIMIT %(n)s)
          UNION ALL
          (SELECT queue, state, kind, task, available_at, started_at FROM pgsched.runs
           WHERE phase = 0 AND ready_at IS NOT NULL LIMIT %(n)s)) r
    GROUP BY 1, 2, 3, 4
)
SELECT queue, state, kind, task, n, extract(epoch FROM clock_timestamp() - oldest_at)::float8 AS oldest_s,
    state <> 'queued' OR EXISTS (
        SELECT FROM alive a WHERE (a.queues IS NULL OR open.queue = ANY (a.queues)) AND open.kind = ANY (a.kinds)
          AND (open.kind <> 'python' OR open.task = ANY (a.tasks))) AS offered
FROM open ORDER BY queue, state, n DESC
