-- job_trigger: run a job now, beside its schedule.
-- params: name text, args jsonb (null: the job's own)
-- returns: id of the new run
-- locks: none beyond the new row
SELECT pgsched.trigger(%(name)s, %(args)s::jsonb) AS id
