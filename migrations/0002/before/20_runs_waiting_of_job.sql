-- The oldest held run of each job is found by one probe a job, however many of them are held.
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_waiting_of_job ON pgsched.runs (job_id, scheduled_at, id) WHERE phase = 0;
