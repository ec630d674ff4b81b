-- pause_set: nothing of this starts any more. Pausing again keeps since when, and what is not given anew.
-- params: what text (all, queue, task), name text (empty for all), reason text, paused_by text (null: the session's user),
--         lasts interval (null: until somebody resumes it)
-- returns: the pause
-- locks: that row
INSERT INTO pgsched.pauses AS p (what, name, reason, paused_by, resume_at)
VALUES (%(what)s, %(name)s, %(reason)s::text, coalesce(%(paused_by)s::text, session_user),
        clock_timestamp() + %(lasts)s::interval)
ON CONFLICT (what, name) DO UPDATE SET reason = coalesce(excluded.reason, p.reason),
    paused_by = CASE WHEN %(paused_by)s::text IS NULL THEN p.paused_by ELSE excluded.paused_by END,
    paused_at = CASE WHEN p.resume_at <= clock_timestamp() THEN excluded.paused_at ELSE p.paused_at END,
    resume_at = excluded.resume_at
RETURNING what, name, paused_at, paused_by, reason, resume_at
