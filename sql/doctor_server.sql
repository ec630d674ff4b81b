-- doctor_server: replication, and this session's way to the server.
-- params: none
-- returns: (pid: of this session; standbys, synchronous: how many are waited for at a commit; all_queries: whether others'
--          queries can be read)
-- locks: none
SELECT pg_backend_pid() AS pid, (SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming')::int AS standbys,
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))::int AS synchronous,
    pg_has_role('pg_read_all_stats', 'USAGE') AS all_queries
