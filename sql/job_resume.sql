-- job_resume: decide slots of a job again. From now: what came due meanwhile is recorded as skipped. From pause: the
-- job's catch-up policy decides it.
-- params: name text, resume_from text (now, pause)
-- returns: name, or no row
-- locks: that job
UPDATE pgsched.jobs SET paused = false, resume_from = %(resume_from)s WHERE name = %(name)s RETURNING name
