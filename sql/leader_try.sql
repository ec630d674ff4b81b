-- leader_try: stand for leader: a session lock that nobody waits for (a waiting statement would hold a snapshot).
-- params: none; the key is derived from the schema's name
-- returns: (led boolean: this session holds the lock now, standby boolean)
-- locks: advisory, session level
SELECT CASE WHEN pg_is_in_recovery() THEN false
       ELSE pg_try_advisory_lock(hashtextextended('pgsched.leader', 0)) END AS led, pg_is_in_recovery() AS standby
