-- job_recent: the newest runs of a job, by slot.
-- params: job_id bigint, n int
-- returns: one row per run
-- locks: none
SELECT id, state, scheduled_at, started_at, finished_at, attempt, max_attempts, origin, reason, error,
    clock_timestamp() AS now
FROM pgsched.runs WHERE job_id = %(job_id)s ORDER BY scheduled_at DESC LIMIT %(n)s
