-- status_leader: the newest term.
-- params: none
-- returns: (term, holder, hostname, pid, elected_at, seen_s: seconds since it was last seen, resigned, terms_lately: how
--          many terms began within a minute), or no row
-- locks: none
SELECT term, holder, hostname, pid, elected_at, extract(epoch FROM clock_timestamp() - seen_at)::float8 AS seen_s,
    resigned_at IS NOT NULL AS resigned,
    (SELECT count(*) FROM pgsched.leader l WHERE l.elected_at > clock_timestamp() - interval '1 minute') AS terms_lately
FROM pgsched.leader ORDER BY term DESC LIMIT 1
