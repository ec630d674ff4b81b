-- migrate_in_the_way: who holds up a migration: the oldest transaction with a lock on our tables.
-- params: none
-- returns: text, one row or none
-- locks: none
SELECT format('pid %s (user %s, %s, %s, for %s s): %s', a.pid, a.usename, coalesce(nullif(a.application_name, ''), 'no name'),
    a.state, round(extract(epoch FROM clock_timestamp() - a.xact_start)), left(regexp_replace(a.query, '\s+', ' ', 'g'), 100))
FROM pg_stat_activity a
WHERE a.pid <> pg_backend_pid() AND EXISTS (
    SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
    WHERE l.pid = a.pid AND l.granted AND c.relnamespace = 'pgsched'::regnamespace
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
ORDER BY a.xact_start LIMIT 1
