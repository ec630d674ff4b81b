-- status_jobs: how many jobs there are. Each is counted once, as job_list names its state: paused, then in error.
-- params: none
-- returns: one row: total, paused, broken (in error), planned (with a next slot), overdue_s: how long the oldest
--          slot of a live job has been due undecided (null: none)
-- locks: none
SELECT count(*) AS total, count(*) FILTER (WHERE paused) AS paused,
    count(*) FILTER (WHERE NOT paused AND error IS NOT NULL) AS broken,
    count(*) FILTER (WHERE NOT paused AND error IS NULL AND next_run_at IS NOT NULL) AS planned,
    extract(epoch FROM clock_timestamp() - min(next_run_at) FILTER (
        WHERE NOT paused AND next_run_at < clock_timestamp()))::float8 AS overdue_s
FROM pgsched.jobs
