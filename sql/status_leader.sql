-- status_leader: the newest term.
-- params: none
-- returns: (term, holder, hostname, pid, elected_at, seen_s: seconds since it was last seen, resigned), or no row
-- locks: none
SELECT term, holder, hostname, pid, elected_at, extract(epoch FROM clock_timestamp() - seen_at)::float8 AS seen_s,
    resigned_at IS NOT NULL AS resigned
FROM pgsched.leader ORDER BY term DESC LIMIT 1
