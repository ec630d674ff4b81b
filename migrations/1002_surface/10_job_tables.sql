-- What a job does not say, its task decides when a run is made (19_tasks.sql): null says so. A job that had the product's
-- value never gave it to its runs.
ALTER TABLE pgsched.jobs
    ALTER COLUMN kill_after DROP DEFAULT, ALTER COLUMN kill_after DROP NOT NULL,
    ALTER COLUMN backoff DROP DEFAULT, ALTER COLUMN backoff DROP NOT NULL,
    ALTER COLUMN backoff_base DROP DEFAULT, ALTER COLUMN backoff_base DROP NOT NULL,
    ALTER COLUMN backoff_max DROP DEFAULT, ALTER COLUMN backoff_max DROP NOT NULL,
    ALTER COLUMN backoff_jitter DROP DEFAULT, ALTER COLUMN backoff_jitter DROP NOT NULL;
-- nobody edits these jobs: no audit, no new plan
ALTER TABLE pgsched.jobs DISABLE TRIGGER USER;
UPDATE pgsched.jobs SET kill_after = nullif(kill_after, '10 seconds'), backoff = nullif(backoff, 'exponential'),
    backoff_base = nullif(backoff_base, '5 seconds'), backoff_max = nullif(backoff_max, '1 hour'),
    backoff_jitter = nullif(backoff_jitter, 0.2);
ALTER TABLE pgsched.jobs ENABLE TRIGGER USER;

COMMENT ON COLUMN pgsched.jobs.kill_after IS 'How long after the request to stop an attempt is killed. NULL: what its task says, or 10 seconds.';
COMMENT ON COLUMN pgsched.jobs.backoff IS 'How the wait between attempts grows. NULL: what its task says, or exponential.';
COMMENT ON COLUMN pgsched.jobs.backoff_base IS 'The first wait. NULL: what its task says, or 5 seconds.';
COMMENT ON COLUMN pgsched.jobs.backoff_max IS 'The longest wait. NULL: what its task says, or 1 hour.';
COMMENT ON COLUMN pgsched.jobs.backoff_jitter IS 'By which part of it a wait may be shorter, 0 to 1. NULL: what its task says, or 0.2.';
