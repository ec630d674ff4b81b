-- job_show: one job, whole. decided_until is null where it is -infinity (nothing decided yet).
-- params: name text
-- returns: one row, or none; `excluded`: the rows of its calendar (from_date, until_date, reason), null without
-- locks: none
SELECT id, name, description, kind, task, args, queue, priority, tags, schedule, timezone, run_at, starts_at, ends_at,
    max_runs, jitter, delete_after_run, overlap, max_buffer, retry_within, misfire_after, catch_up, max_catch_up,
    catch_up_window, start_deadline, max_attempts, timeout, kill_after, backoff, backoff_base, backoff_max,
    backoff_jitter, success_codes, retry_codes, dead_codes, concurrency_key, concurrency_limit, after_jobs, keep,
    alert_after_failures, max_lateness, max_duration, expect_every, paused,
    paused_at, paused_by, paused_reason, declared_by, owner, created_at, updated_at, anchor_at,
    nullif(decided_until, '-infinity') AS decided_until, next_run_at, run_count, error, error_at,
    (SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason) ORDER BY c.from_date)
     FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS excluded,
    clock_timestamp() AS now
FROM pgsched.jobs j WHERE name = %(name)s
