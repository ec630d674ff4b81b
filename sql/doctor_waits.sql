-- doctor_waits: sessions of pgsched that wait for a lock, and one that they wait for.
-- params: longer_s float8: statements that have gone on for longer
-- returns: (application: whose statement waits; waits_s, pid, who, by: the other's application, state, query: its beginning)
-- locks: none
SELECT w.application_name AS application, extract(epoch FROM clock_timestamp() - w.query_start)::float8 AS waits_s,
    b.pid, b.usename::text AS who, b.application_name AS by, b.state, left(b.query, 200) AS query
FROM pg_stat_activity w CROSS JOIN LATERAL (
    SELECT a.* FROM unnest(pg_blocking_pids(w.pid)) AS p(pid) JOIN pg_stat_activity a ON a.pid = p.pid
    ORDER BY a.xact_start LIMIT 1) b
WHERE w.datname = current_database() AND w.wait_event_type = 'Lock' AND w.application_name LIKE 'pgsched%%'
  AND w.query_start < clock_timestamp() - make_interval(secs => %(longer_s)s)
ORDER BY waits_s DESC LIMIT 5
