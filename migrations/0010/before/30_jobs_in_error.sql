-- Jobs in error, which a new leader looks at (tick_again in sql/ticks.sql): found without reading all jobs.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_in_error ON pgsched.jobs (id) WHERE error IS NOT NULL;
