-- testing_jobs: the jobs whose slots a clock that travels may pass.
-- params: none
-- returns: (name, schedule, timezone, anchor_at), by name
-- locks: none
SELECT name, schedule, timezone, anchor_at FROM pgsched.jobs
WHERE schedule IS NOT NULL AND NOT paused ORDER BY name
