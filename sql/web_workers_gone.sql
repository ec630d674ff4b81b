-- web_workers_gone: workers that were there within the last hour and are not any more, by the newest ids.
-- params: n int
-- returns: (id, name, seen_at, started_at, stopped_at: null where it just vanished, now)
-- locks: none
SELECT id, name, seen_at, started_at, stopped_at, clock_timestamp() AS now
FROM (SELECT * FROM pgsched.workers ORDER BY id DESC LIMIT 500) w
WHERE (stopped_at IS NOT NULL OR seen_at <= clock_timestamp() - lease) AND seen_at > clock_timestamp() - interval '1 hour'
ORDER BY seen_at DESC LIMIT %(n)s
