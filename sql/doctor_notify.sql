-- doctor_notify: how full the notification queue is, and the oldest transaction of any session, behind which nothing is
-- taken out of it if that session listens.
-- params: none
-- returns: (usage float8 0-1, pid, who, application, state, age_s, query: its beginning), one row
-- locks: none
SELECT pg_notification_queue_usage()::float8 AS usage, a.pid, a.usename::text AS who, a.application_name AS application,
    a.state, extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS age_s, left(a.query, 200) AS query
FROM (VALUES (1)) v LEFT JOIN LATERAL (
    SELECT * FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
    ORDER BY xact_start LIMIT 1) a ON true
