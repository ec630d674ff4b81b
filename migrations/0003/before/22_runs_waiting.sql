-- 40_runs.sql gives it the name of the one it replaces.
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_waiting_next ON pgsched.runs (available_at, id)
    WHERE phase = 0 AND ready_at IS NULL;
