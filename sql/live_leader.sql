-- live_leader: the newest term.
-- params: none
-- returns: (term, holder, elected_at, seen_s: seconds since it was last seen, resigned)
-- locks: none
SELECT term, holder, elected_at, extract(epoch FROM clock_timestamp() - seen_at)::float8 AS seen_s,
    resigned_at IS NOT NULL AS resigned
FROM pgsched.leader ORDER BY term DESC LIMIT 1
