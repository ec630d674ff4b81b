-- One-off jobs that go once their run has succeeded (prune_jobs in sql/retention.sql): found without reading all jobs.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_done_once ON pgsched.jobs (id)
    WHERE delete_after_run AND schedule IS NULL AND next_run_at IS NULL;
