-- pause_list: what is paused now.
-- params: none
-- returns: (what, name: empty for all, paused_at, paused_by, reason, resume_at: null: until somebody resumes it, now)
-- locks: none
SELECT what, name, paused_at, paused_by, reason, resume_at, clock_timestamp() AS now FROM pgsched.pauses
WHERE what <> 'limit' AND coalesce(resume_at > clock_timestamp(), true) ORDER BY what, name
