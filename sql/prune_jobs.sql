-- prune_jobs: one-off jobs with delete_after_run go once their run has succeeded.
-- params: n int
-- returns: nothing
-- locks: those rows, skipping locked ones
WITH done AS MATERIALIZED (
    SELECT j.id FROM pgsched.jobs j
    WHERE j.delete_after_run AND j.schedule IS NULL AND j.next_run_at IS NULL AND (
        SELECT r.state = 'succeeded' FROM pgsched.runs r WHERE r.job_id = j.id AND r.scheduled_at = j.run_at)
    LIMIT %(n)s FOR UPDATE SKIP LOCKED
)
DELETE FROM pgsched.jobs j USING done WHERE j.id = done.id
