-- pause_end: end a pause. A trigger wakes the workers.
-- params: what text, name text (empty for all)
-- returns: the pause that was, or no row
-- locks: that row
DELETE FROM pgsched.pauses WHERE what = %(what)s AND name = %(name)s
RETURNING what, name, paused_at, paused_by, reason, resume_at
