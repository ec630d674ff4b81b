-- What delays an upgrade.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: migrate_in_the_way
-- return what delays a migration: the oldest transaction with a lock on pgsched's tables.
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


-- name: migrate_index_build
-- return how far a session is with building an index.
-- params: pid int: its server process
-- returns: text, one row or none
-- locks: none
SELECT p.phase || CASE WHEN p.blocks_total > 0 THEN format(' (%%s %%%%)', 100 * p.blocks_done / p.blocks_total) ELSE '' END
    || coalesce((SELECT format(', waits for pid %%s (user %%s, %%s): %%s', a.pid, a.usename, a.state,
                               left(regexp_replace(a.query, '\s+', ' ', 'g'), 100))
                 FROM pg_stat_activity a WHERE a.pid = p.current_locker_pid), '')
FROM pg_stat_progress_create_index p WHERE p.pid = %(pid)s


-- name: migrate_turn
-- take our turn to migrate. Any role may take the lock. If the holder may not migrate, ask for the next key instead of
-- waiting.
-- params: key bigint
-- returns: (got boolean; waits boolean: a session that may migrate has the lock)
-- locks: advisory, session level
WITH asked AS MATERIALIZED (SELECT pg_try_advisory_lock(%(key)s::bigint) AS got)
SELECT got, NOT got AND EXISTS (
    SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (l.classid::bigint << 32) + l.objid::bigint = %(key)s::bigint
      AND (pg_has_role(a.usesysid, (SELECT datdba FROM pg_database WHERE datname = current_database()), 'MEMBER')
           OR has_database_privilege(a.usesysid, current_database(), 'CREATE')
           OR pg_has_role(a.usesysid, coalesce((SELECT nspowner FROM pg_namespace WHERE nspname = 'pgsched'), a.usesysid),
                          'MEMBER') AND EXISTS (SELECT FROM pg_namespace WHERE nspname = 'pgsched'))) AS waits
FROM asked
