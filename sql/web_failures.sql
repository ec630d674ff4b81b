-- web_failures: the newest runs that ended badly, by the index over those.
-- params: n int
-- returns: (id, state, job, task, finished_at, attempt, max_attempts, why)
-- locks: none
SELECT r.id, r.state, j.name AS job, r.task, r.finished_at, r.attempt, r.max_attempts,
    coalesce(r.error, r.reason) AS why
FROM (SELECT * FROM pgsched.runs WHERE phase = 4 ORDER BY finished_at DESC LIMIT %(n)s) r
LEFT JOIN pgsched.jobs j ON j.id = r.job_id ORDER BY r.finished_at DESC
