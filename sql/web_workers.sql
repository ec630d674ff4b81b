-- web_workers: the workers that are alive, as status_workers, and whether somebody asked them to drain.
-- params: none
-- returns: (id, name, hostname, pid, version, app, concurrency, running, abandoned, kinds, queues, tasks: how many,
--          started_at, seen_s, stopping, blocked_s: for how long its loop has not turned, blocked_by, drain_asked)
-- locks: none
SELECT id, name, hostname, pid, version, app, concurrency, running, abandoned, kinds, queues,
    cardinality(tasks) AS tasks, started_at, extract(epoch FROM clock_timestamp() - seen_at)::float8 AS seen_s,
    stopping_at IS NOT NULL AS stopping, extract(epoch FROM clock_timestamp() - blocked_at)::float8 AS blocked_s,
    blocked_by, drain_asked_at IS NOT NULL AS drain_asked
FROM pgsched.workers WHERE stopped_at IS NULL AND seen_at > clock_timestamp() - lease
ORDER BY id
