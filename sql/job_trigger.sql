-- job_trigger: run a job now, beside its schedule.
-- params: name text, args jsonb (null: the job's own), overlap text (allow: whatever else runs)
-- returns: id of the new run
-- locks: none beyond the new row; the job's row where overlap is not allow
SELECT pgsched.trigger(%(name)s, %(args)s::jsonb, %(overlap)s) AS id
