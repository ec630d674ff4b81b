-- Is one of the edges of a run open, or has one failed? However many are met.
CREATE INDEX CONCURRENTLY IF NOT EXISTS dependencies_unmet ON pgsched.dependencies (run_id, state, parent_id)
    WHERE state <> 'met' AND NOT any_of;
