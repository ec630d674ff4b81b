-- 40_runs.sql gives it the name of the one it replaces.
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_waiting_of_job_next ON pgsched.runs (job_id, scheduled_at, id)
    WHERE phase = 0 AND ready_at IS NULL;
