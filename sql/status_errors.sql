-- status_errors: jobs that the leader could not evaluate, newest first. Those that are paused are not wanted now.
-- params: n int
-- returns: (name, error, error_at)
-- locks: none
SELECT name, error, error_at FROM pgsched.jobs WHERE error IS NOT NULL AND NOT paused
ORDER BY error_at DESC NULLS LAST, name LIMIT %(n)s
