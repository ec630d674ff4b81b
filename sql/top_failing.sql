-- top_failing: runs whose last attempt failed and that will be tried again, the next first. Of the runs for later, the
-- first `deep` are looked at.
-- params: n int, deep int
-- returns: (id, state, job, task, attempt, max_attempts, available_at, why, now)
-- locks: none
SELECT r.id, r.state, j.name AS job, r.task, r.attempt, r.max_attempts, r.available_at,
    coalesce(r.error, r.reason) AS why, clock_timestamp() AS now
FROM (
    SELECT soon.* FROM (SELECT * FROM pgsched.runs WHERE phase = 1 ORDER BY available_at, id LIMIT %(deep)s) soon
    WHERE soon.attempt > 0 ORDER BY soon.available_at, soon.id LIMIT %(n)s
) r LEFT JOIN pgsched.jobs j ON j.id = r.job_id ORDER BY r.available_at, r.id
