-- Figures of the whole database.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: clock
-- return the database's time, in seconds since 1970.
-- params: none
-- returns: one row: seconds float8
-- locks: none
SELECT extract(epoch FROM clock_timestamp())::float8 AS seconds


-- name: metrics_queues
-- return the unfinished runs by queue and state, and the age of the oldest. At most n of each phase are read, through
-- its partial index.
-- params: n int
-- returns: (queue, state, n, oldest_s: seconds since it could start, or since it started)
-- locks: none
SELECT queue, state, count(*) AS n, extract(epoch FROM clock_timestamp()
    - min(CASE WHEN state = 'running' THEN started_at ELSE available_at END))::float8 AS oldest_s
FROM ((SELECT queue, state, available_at, started_at FROM pgsched.runs WHERE phase = 2 /* claimable */ LIMIT %(n)s)
      UNION ALL (SELECT queue, state, available_at, started_at FROM pgsched.runs
          WHERE phase = 1 /* scheduled */ LIMIT %(n)s)
      UNION ALL (SELECT queue, state, available_at, started_at FROM pgsched.runs
                 WHERE phase = 0 /* waiting */ AND ready_at IS NULL LIMIT %(n)s)
      UNION ALL (SELECT queue, state, available_at, started_at FROM pgsched.runs
                 WHERE phase = 0 /* waiting */ AND ready_at IS NOT NULL LIMIT %(n)s)) r
GROUP BY queue, state


-- name: metrics_tables
-- return live and dead rows of pgsched's tables, from the server's statistics.
-- params: none
-- returns: (name, live, dead)
-- locks: none
SELECT relname AS name, n_live_tup AS live, n_dead_tup AS dead FROM pg_stat_user_tables WHERE schemaname = 'pgsched'


-- name: now
-- return the database's time.
-- params: none
-- returns: one row: now timestamptz
-- locks: none
SELECT clock_timestamp() AS now
