-- Parents that have ended and that the leader has yet to look at (43_dependencies.sql).
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_ended_parents ON pgsched.runs (id) WHERE phase >= 3 AND has_children;
