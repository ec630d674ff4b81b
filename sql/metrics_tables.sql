-- metrics_tables: live and dead rows of pgsched's tables, as the server's statistics have them.
-- params: none
-- returns: (name, live, dead)
-- locks: none
SELECT relname AS name, n_live_tup AS live, n_dead_tup AS dead FROM pg_stat_user_tables WHERE schemaname = 'pgsched'
