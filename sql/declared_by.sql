-- declared_by: who owns a job.
-- params: name text
-- returns: declared_by text (null: made by SQL)
-- locks: none
SELECT declared_by FROM pgsched.jobs WHERE name = %(name)s
