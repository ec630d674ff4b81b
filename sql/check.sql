-- Is this server and database fit?
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: check_grants
-- what the session's role may not do although a worker, or a leader, has to.
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


-- name: check_roles
-- which of the roles of sql/roles.sql the session's role acts as; none for a superuser, who needs none.
-- params: none
-- returns: role text (worker, leader, ...), no row where the roles are not in force
-- locks: none
SELECT substr(r.rolname, 9) AS role FROM pg_roles r
WHERE r.rolname IN ('pgsched_owner', 'pgsched_worker', 'pgsched_leader', 'pgsched_producer', 'pgsched_operator', 'pgsched_viewer')
  AND pg_has_role(r.oid, 'USAGE') AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
  AND EXISTS (SELECT FROM pg_policies WHERE schemaname = 'pgsched' AND policyname = 'pgsched_all')
ORDER BY 1


-- name: check_server
-- what `pgsched check` wants to know of the server and this session.
-- params: none
-- returns: one row of facts; transaction_s: age of the oldest open transaction of this database that one may see
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
