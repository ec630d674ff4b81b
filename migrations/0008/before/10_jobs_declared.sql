-- The jobs that code declares: found without reading all jobs.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_declared ON pgsched.jobs (declared_by) WHERE declared_by IS NOT NULL;
