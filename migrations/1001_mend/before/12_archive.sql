-- A number may come again after a failover or a restore: the archive tells such runs apart by when they ended.
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS archived_runs_ended ON pgsched.archived_runs (run_id, finished_at);
