-- job_pause: stop deciding slots of a job. Pausing again keeps since when, and what is not given anew.
-- params: name text, reason text, paused_by text (null: the session's user)
-- returns: name, or no row
-- locks: that job
UPDATE pgsched.jobs SET paused = true,
    paused_reason = CASE WHEN paused THEN coalesce(%(reason)s, paused_reason) ELSE %(reason)s END,
    paused_by = CASE WHEN paused THEN coalesce(%(paused_by)s, paused_by) ELSE %(paused_by)s END
WHERE name = %(name)s RETURNING name
