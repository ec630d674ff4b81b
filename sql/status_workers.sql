-- status_workers: the workers that are alive: not signed off, and seen within their lease.
-- params: none
-- returns: (id, name, hostname, pid, version, app, concurrency, running, abandoned, kinds, queues, tasks: how many,
--          started_at, seen_s, stopping, blocked_s: for how long its loop has not turned, blocked_by,
--          pooler: session or transaction, null: none)
-- locks: none
SELECT id, name, hostname, pid, version, app, concurrency, running, abandoned, kinds, queues,
    cardinality(tasks) AS tasks, started_at, extract(epoch FROM clock_timestamp() - seen_at)::float8 AS seen_s,
    stopping_at IS NOT NULL AS stopping, extract(epoch FROM clock_timestamp() - blocked_at)::float8 AS blocked_s,
    blocked_by, pooler
FROM pgsched.workers WHERE stopped_at IS NULL AND seen_at > clock_timestamp() - lease
ORDER BY id
