-- job_resume: decide slots of a job again, from now on; what came due meanwhile is recorded as skipped.
-- params: name text
-- returns: name, or no row
-- locks: that job
UPDATE pgsched.jobs SET paused = false WHERE name = %(name)s RETURNING name
