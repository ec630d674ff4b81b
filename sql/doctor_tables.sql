-- doctor_tables: dead rows of the tables that are written all the time.
-- params: none
-- returns: (name, live, dead, limit: at so many dead rows autovacuum comes, vacuumed_s: since when it last came, null:
--          never or not known; off: autovacuum is off for the table)
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
