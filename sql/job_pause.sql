-- job_pause: stop deciding slots of a job. Pausing again keeps since when and by whom.
-- params: name text, reason text
-- returns: name, or no row
-- locks: that job
UPDATE pgsched.jobs SET paused = true, paused_reason = CASE WHEN paused THEN coalesce(%(reason)s, paused_reason)
                                                            ELSE %(reason)s END
WHERE name = %(name)s RETURNING name
