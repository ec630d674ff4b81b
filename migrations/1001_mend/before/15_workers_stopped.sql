-- Those that stopped of late, for each round of the leader, and those that stopped long ago, for the pruner. By this column
-- and not by seen_at: then no heartbeat would be a heap-only update.
CREATE INDEX CONCURRENTLY IF NOT EXISTS workers_stopped ON pgsched.workers (stopped_at) WHERE stopped_at IS NOT NULL;
