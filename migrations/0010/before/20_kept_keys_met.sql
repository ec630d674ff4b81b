-- The keys of a run that goes: what became of it stays with them (prune_delete in sql/retention.sql). The key that it was made by is
-- in its row.
CREATE INDEX CONCURRENTLY IF NOT EXISTS kept_keys_met ON pgsched.kept_keys (run_id) WHERE met;
