-- metrics_queues: the unfinished runs by queue and state, and the age of the oldest. At most n of each phase are read,
-- through its partial index.
-- params: n int
-- returns: (queue, state, n, oldest_s: since it could start, or since it was started)
-- locks: none
SELECT queue, state, count(*) AS n, extract(epoch FROM clock_timestamp()
    - min(CASE WHEN state = 'running' THEN started_at ELSE available_at END))::float8 AS oldest_s
FROM ((SELECT queue, state, available_at, started_at FROM pgsched.runs WHERE phase = 2 LIMIT %(n)s)
      UNION ALL (SELECT queue, state, available_at, started_at FROM pgsched.runs WHERE phase = 1 LIMIT %(n)s)
      UNION ALL (SELECT queue, state, available_at, started_at FROM pgsched.runs
                 WHERE phase = 0 AND ready_at IS NULL LIMIT %(n)s)
      UNION ALL (SELECT queue, state, available_at, started_at FROM pgsched.runs
                 WHERE phase = 0 AND ready_at IS NOT NULL LIMIT %(n)s)) r
GROUP BY queue, state
