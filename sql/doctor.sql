-- Problems of the running system, and whether the server and database are fit.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: doctor_leader
-- return the session that holds the lock of waiting candidates, and the session that leads.
-- params: none
-- returns: (lock: leader (the advisory lock, which any session may take) or fence (the row of the term, which the
--          leader locks in each of its transactions); leads boolean: it is the session of the newest term; pid, who,
--          application, state, held_s: the age of its transaction, idle_s: since its last statement, query: its
--          beginning)
-- locks: none
WITH newest AS MATERIALIZED (
    SELECT backend FROM pgsched.leader WHERE term = (SELECT max(term) FROM pgsched.leader) AND resigned_at IS NULL
)
SELECT k.lock, a.pid IN (SELECT backend FROM newest) AS leads, a.pid, a.usename::text AS who,
    a.application_name AS application, a.state, extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS held_s,
    extract(epoch FROM clock_timestamp() - a.state_change)::float8 AS idle_s, left(a.query, 200) AS query
FROM (
    SELECT 'leader' AS lock, l.pid FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (l.classid::bigint << 32) + l.objid::bigint = hashtextextended('pgsched.leader', 0::bigint)
    UNION ALL
    SELECT 'fence', backend FROM newest
) k JOIN pg_stat_activity a ON a.pid = k.pid


-- name: doctor_long_locks
-- return locks that are held for long while others wait for long, the longest wait first. Elections are none of them: a
-- leader leads as long as it likes.
-- params: held_s float8, waits_s float8: only longer ones
-- returns: (name, holder: session of the oldest grant, fence, held_s, waiting: how many, waits_s: of the first); at most 5
-- locks: none
SELECT l.name, l.holder, l.fence, extract(epoch FROM clock_timestamp() - l.held_since)::float8 AS held_s, l.waiting,
    extract(epoch FROM clock_timestamp() - l.waiting_since)::float8 AS waits_s
FROM pgsched.lock_list(most => 10000, kind => 'lock') l
WHERE l.held_since < clock_timestamp() - make_interval(secs => %(held_s)s)
  AND l.waiting_since < clock_timestamp() - make_interval(secs => %(waits_s)s)
ORDER BY l.waiting_since LIMIT 5


-- name: doctor_sessions
-- count sessions and what they have; each count ends at 100,000.
-- params: none
-- returns: one row (sessions, held: grants, waiting)
-- locks: none
SELECT (SELECT count(*) FROM (SELECT FROM pgsched.sessions
            WHERE ended_at IS NULL AND lease_until > clock_timestamp() LIMIT 100000) s) AS sessions,
    count(p.fence) AS held, count(*) - count(p.fence) AS waiting
FROM (SELECT fence FROM pgsched.lock_places LIMIT 100000) p


-- name: doctor_notify
-- return how full the notification queue is, and the oldest transaction of any session. If that session listens,
-- nothing behind its transaction is removed from the queue.
-- params: none
-- returns: one row (usage float8 0-1, pid, who, application, state, age_s, query: its beginning)
-- locks: none
SELECT pg_notification_queue_usage()::float8 AS usage, a.pid, a.usename::text AS who, a.application_name AS application,
    a.state, extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS age_s, left(a.query, 200) AS query
FROM (VALUES (1)) v LEFT JOIN LATERAL (
    SELECT * FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
    ORDER BY xact_start LIMIT 1) a ON true


-- name: doctor_objects
-- return indexes that cannot be used, triggers that do not fire, and row policies that are not in force.
-- params: none
-- returns: (what: index, trigger or policy, name, of: its table, text: what is wrong)
-- locks: none
SELECT 'index' AS what, c.relname::text AS name, t.relname::text AS of,
    CASE WHEN i.indisready THEN 'is invalid' ELSE 'is not ready' END AS text
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
WHERE t.relnamespace = 'pgsched'::regnamespace AND NOT (i.indisvalid AND i.indisready)
UNION ALL
SELECT 'trigger', g.tgname::text, t.relname::text, 'is disabled'
FROM pg_trigger g JOIN pg_class t ON t.oid = g.tgrelid
WHERE t.relnamespace = 'pgsched'::regnamespace AND g.tgenabled IN ('D', 'R')
UNION ALL
SELECT 'policy', min(p.polname)::text, t.relname::text, 'is not asked: row level security is off'
FROM pg_policy p JOIN pg_class t ON t.oid = p.polrelid
WHERE t.relnamespace = 'pgsched'::regnamespace AND NOT t.relrowsecurity GROUP BY t.relname
ORDER BY 1, 2


-- name: doctor_pins
-- return what keeps vacuum from removing dead rows, the oldest first: sessions of this database, prepared transactions,
-- replication slots, and standbys that report what they read.
-- params: older_s float8: only sessions with an older snapshot or transaction
-- returns: (what: session, prepared, slot, standby; pid, who, application, state, age_s: null if unknown, age_xids,
--          query: its beginning)
-- locks: none
SELECT * FROM (
    SELECT 'session' AS what, pid, usename::text AS who, application_name AS application, state,
        extract(epoch FROM clock_timestamp() - coalesce(xact_start, query_start))::float8 AS age_s,
        greatest(age(backend_xmin), age(backend_xid)) AS age_xids, left(query, 200) AS query
    FROM pg_stat_activity
    WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
      AND coalesce(xact_start, query_start) < clock_timestamp() - make_interval(secs => %(older_s)s)
      AND backend_type <> 'walsender' AND (datname = current_database() OR datname IS NULL)
    UNION ALL
    SELECT 'prepared', NULL, owner::text, gid, NULL, extract(epoch FROM clock_timestamp() - prepared)::float8,
        age(transaction), NULL
    FROM pg_prepared_xacts
    WHERE database = current_database() AND prepared < clock_timestamp() - make_interval(secs => %(older_s)s)
    UNION ALL
    SELECT 'slot', active_pid, NULL, slot_name::text, CASE WHEN active THEN 'active' ELSE 'inactive' END, NULL,
        greatest(age(xmin), age(catalog_xmin)), NULL
    FROM pg_replication_slots WHERE age(xmin) > 100000 OR NOT active AND xmin IS NOT NULL
    UNION ALL
    SELECT 'standby', pid, usename::text, application_name, state, NULL, age(backend_xmin), NULL
    FROM pg_stat_replication WHERE age(backend_xmin) > 100000
) p
ORDER BY age_xids DESC NULLS LAST LIMIT 5


-- name: doctor_server
-- return facts about replication, and about this session's connection to the server.
-- params: none
-- returns: (pid: of this session; standbys, synchronous: how many standbys a commit waits for; all_queries: whether
--          this role can read other sessions' queries)
-- locks: none
SELECT pg_backend_pid() AS pid, (SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming')::int AS standbys,
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))::int AS synchronous,
    pg_has_role('pg_read_all_stats', 'USAGE') AS all_queries


-- name: doctor_tables
-- return the dead rows of the tables that are written all the time.
-- params: none
-- returns: (name, live, dead, limit: autovacuum starts at this many dead rows, vacuumed_s: since its last run, null:
--          never or unknown; off: autovacuum is off for the table)
-- locks: none
SELECT s.relname AS name, s.n_live_tup AS live, s.n_dead_tup AS dead,
    coalesce((o.options ->> 'autovacuum_vacuum_threshold')::float8, current_setting('autovacuum_vacuum_threshold')::float8)
    + coalesce((o.options ->> 'autovacuum_vacuum_scale_factor')::float8,
               current_setting('autovacuum_vacuum_scale_factor')::float8) * greatest(c.reltuples, 0) AS limit,
    extract(epoch FROM clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum))::float8 AS vacuumed_s,
    coalesce(o.options ->> 'autovacuum_enabled', 'on') IN ('off', 'false') AS off
FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid CROSS JOIN LATERAL (
    SELECT jsonb_object_agg(option_name, option_value) AS options FROM pg_options_to_table(c.reloptions)) o
WHERE s.schemaname = 'pgsched' ORDER BY s.n_dead_tup DESC


-- name: doctor_waits
-- return sessions of pgsched that wait for a lock, and one session that each waits for. Read from pg_locks, which every
-- role may read.
-- params: longer_s float8: only longer waits
-- returns: (application: of the waiting session; waits_s; pid, who, by: the other session's application, state, query:
--          its beginning)
-- locks: none
SELECT w.application_name AS application, w.waits_s, b.pid, b.usename::text AS who, b.application_name AS by, b.state,
    left(b.query, 200) AS query
FROM (
    SELECT a.pid, a.application_name, extract(epoch FROM clock_timestamp() - min(l.waitstart))::float8 AS waits_s
    FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE NOT l.granted AND a.datname = current_database() AND a.application_name LIKE 'pgsched%%' GROUP BY 1, 2
) w CROSS JOIN LATERAL (
    SELECT a.* FROM unnest(pg_blocking_pids(w.pid)) AS p(pid) JOIN pg_stat_activity a ON a.pid = p.pid
    ORDER BY a.xact_start LIMIT 1) b
WHERE w.waits_s > %(longer_s)s
ORDER BY waits_s DESC LIMIT 5


-- name: doctor_locks
-- return sessions that hold a lock on whole tables of pgsched, for which others wait as long as it is held.
-- params: longer_s float8: only older transactions, or those of unknown age
-- returns: (tables, mode, pid, who, application, state, held_s: null if unknown, query: its beginning)
-- locks: none
SELECT string_agg(DISTINCT c.relname::text, ', ' ORDER BY c.relname::text) AS tables, l.mode, a.pid, a.usename::text AS who,
    a.application_name AS application, a.state, left(a.query, 200) AS query,
    extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS held_s
FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE n.nspname = 'pgsched' AND c.relkind = 'r' AND l.granted AND l.pid <> pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND coalesce(a.xact_start < clock_timestamp() - make_interval(secs => %(longer_s)s), true)
GROUP BY l.mode, a.pid, a.usename, a.application_name, a.state, a.query, a.xact_start ORDER BY held_s DESC NULLS LAST LIMIT 5


-- name: doctor_workers
-- return what workers that have not signed off report of themselves.
-- params: none
-- returns: (name, hostname, version, seen_s, lease_s, alive: seen within its lease; clock_ahead_s, tz_version)
-- locks: none
SELECT name, hostname, version, extract(epoch FROM clock_timestamp() - seen_at)::float8 AS seen_s,
    extract(epoch FROM lease)::float8 AS lease_s, seen_at > clock_timestamp() - lease AS alive, clock_ahead_s, tz_version
FROM pgsched.workers WHERE stopped_at IS NULL ORDER BY id


-- name: check_grants
-- return the missing grants of the session's role, of those that a worker or a leader needs.
-- params: none
-- returns: missing text, one row for each missing grant, by importance
-- locks: none
SELECT format('USAGE on schema %%s', 'pgsched') AS missing WHERE NOT has_schema_privilege('pgsched', 'USAGE')
UNION ALL
SELECT format('%%s on table pgsched.%%s', privilege, relname)
FROM pg_class, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS privilege
WHERE relnamespace = 'pgsched'::regnamespace AND relkind = 'r' AND relname <> 'alembic_version'
  AND NOT has_table_privilege(oid, privilege)
UNION ALL
SELECT 'SELECT on table pgsched.alembic_version' FROM pg_class
WHERE relnamespace = 'pgsched'::regnamespace AND relname = 'alembic_version' AND NOT has_table_privilege(oid, 'SELECT')
UNION ALL
SELECT format('EXECUTE on function pgsched.%%s', proname) FROM pg_proc
WHERE pronamespace = 'pgsched'::regnamespace AND NOT has_function_privilege(oid, 'EXECUTE')


-- name: check_fleet
-- raise an error unless the database belongs to this fleet.
-- params: fleet uuid (null: any)
-- returns: fleet uuid: the database's
-- locks: none
SELECT pgsched.assert_fleet(%(fleet)s::uuid) AS fleet


-- name: check_roles
-- return which roles of sql/roles.sql the session's role has; none for a superuser, who needs none.
-- params: none
-- returns: role text (worker, leader, ...), no row if the roles are not in force
-- locks: none
SELECT substr(r.rolname, 9) AS role FROM pg_roles r
WHERE r.rolname IN ('pgsched_owner', 'pgsched_worker', 'pgsched_leader', 'pgsched_producer', 'pgsched_operator', 'pgsched_viewer')
  AND pg_has_role(r.oid, 'USAGE') AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
  AND EXISTS (SELECT FROM pg_policies WHERE schemaname = 'pgsched' AND policyname = 'pgsched_all')
ORDER BY 1


-- name: check_server
-- return facts about the server and this session for `pgsched check`.
-- params: none
-- returns: one row of facts; transaction_s: age of the oldest open transaction of this database that this role can see
-- locks: none
SELECT current_setting('server_version_num')::int AS version_num, current_setting('server_version') AS version,
    current_database() AS database, current_user AS role, pg_encoding_to_char(encoding) AS encoding,
    pg_is_in_recovery() AS standby, current_setting('transaction_read_only') AS read_only,
    current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit, current_setting('autovacuum') AS autovacuum,
    current_setting('max_connections')::int AS max_connections,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int AS connections,
    pg_notification_queue_usage()::float8 AS notify_usage, clock_timestamp() AS now,
    (SELECT extract(epoch FROM max(clock_timestamp() - xact_start))::float8 FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()) AS transaction_s,
    has_database_privilege(current_database(), 'CREATE') AS may_create
FROM pg_database WHERE datname = current_database()
