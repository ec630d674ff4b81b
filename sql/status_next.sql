-- status_next: the slots that come next.
-- params: n int
-- returns: (name, next_run_at, in_s: seconds until then, negative when it is due, schedule, timezone)
-- locks: none
SELECT name, next_run_at, extract(epoch FROM next_run_at - clock_timestamp())::float8 AS in_s, schedule, timezone
FROM pgsched.jobs WHERE NOT paused AND next_run_at IS NOT NULL ORDER BY next_run_at LIMIT %(n)s
