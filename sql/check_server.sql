-- check_server: what `pgsched check` wants to know of the server and this session.
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
