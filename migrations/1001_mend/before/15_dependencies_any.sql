-- The edges of which one is enough.
CREATE INDEX CONCURRENTLY IF NOT EXISTS dependencies_any ON pgsched.dependencies (run_id, state, parent_id) WHERE any_of;
