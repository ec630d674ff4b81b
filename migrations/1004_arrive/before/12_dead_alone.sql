-- Runs without a job that ended badly, for the alert about them (alert_dead_runs in sql/alerts.sql).
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_dead_alone ON pgsched.runs (finished_at)
    WHERE phase = 4 /* ended badly */ AND job_id IS NULL;
