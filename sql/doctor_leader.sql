-- doctor_leader: who holds the locks that a leader needs.
-- params: none
-- returns: (lock: leader (held for a term) or fence (held for one transaction); pid, who, application, state,
--          held_s: for how long its transaction goes on, idle_s: since its last statement, query: its beginning)
-- locks: none
SELECT k.name AS lock, a.pid, a.usename::text AS who, a.application_name AS application, a.state,
    extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS held_s,
    extract(epoch FROM clock_timestamp() - a.state_change)::float8 AS idle_s, left(a.query, 200) AS query
FROM (VALUES ('leader', hashtextextended('pgsched.leader', 0)), ('fence', hashtextextended('pgsched.leader.fence', 0)))
    AS k(name, key)
JOIN pg_locks l ON l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (l.classid::bigint << 32) + l.objid::bigint = k.key
JOIN pg_stat_activity a ON a.pid = l.pid
