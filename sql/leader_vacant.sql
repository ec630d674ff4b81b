-- leader_vacant: may a candidate that can hold no session lock stand for leader? Asked again behind leader_fence.
-- A term that was seen in the future was seen before the clock went back (a failover): it is not waited for. Should it be
-- alive, the new term and leader_fence end it.
-- params: gone_s float8 (a term that has not been seen for so long has ended)
-- returns: vacant boolean
-- locks: none
SELECT NOT pg_is_in_recovery() AND NOT EXISTS (
    SELECT FROM pgsched.leader WHERE term = (SELECT max(term) FROM pgsched.leader) AND resigned_at IS NULL
      AND seen_at > clock_timestamp() - make_interval(secs => %(gone_s)s)
      AND seen_at < clock_timestamp() + interval '2 seconds') AS vacant
