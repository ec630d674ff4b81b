-- live_workers: the workers that are alive: not signed off, and seen within their lease.
-- params: none
-- returns: (id, name, concurrency, running, kinds, stopping)
-- locks: none
SELECT id, name, concurrency, running, kinds, stopping_at IS NOT NULL AS stopping
FROM pgsched.workers WHERE stopped_at IS NULL AND seen_at > clock_timestamp() - lease
ORDER BY id
