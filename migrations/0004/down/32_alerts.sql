DROP TABLE IF EXISTS pgsched.alert_deliveries, pgsched.alerts;
CREATE OR REPLACE TRIGGER a_check_update BEFORE UPDATE OF id, name, kind, task, args, queue, priority, tags, schedule,
        timezone, run_at, starts_at, ends_at, max_runs, jitter, delete_after_run, overlap, max_buffer,
        retry_within, misfire_after, catch_up, max_catch_up, catch_up_window, start_deadline, max_attempts,
        timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter, success_codes, retry_codes,
        dead_codes, concurrency_key, concurrency_limit, after_jobs, paused, paused_at, paused_by, paused_reason,
        resume_from, declared_by, description, owner, created_at, updated_at
    ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_before_update();
CREATE OR REPLACE TRIGGER f_audit_update AFTER UPDATE OF name, kind, task, args, queue, priority, tags, schedule, timezone, run_at,
        starts_at, ends_at, max_runs, jitter, delete_after_run, overlap, max_buffer, retry_within, misfire_after, catch_up,
        max_catch_up, catch_up_window, start_deadline, max_attempts, timeout, kill_after, backoff, backoff_base,
        backoff_max, backoff_jitter, success_codes, retry_codes, dead_codes, concurrency_key, concurrency_limit, after_jobs,
        paused, paused_by, paused_reason, resume_from, declared_by, description, owner
    ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION pgsched.audit_jobs_changed();
DROP TRIGGER IF EXISTS a_refuse_watch ON pgsched.jobs;
ALTER TABLE pgsched.jobs DROP COLUMN IF EXISTS alert_after_failures, DROP COLUMN IF EXISTS max_lateness,
    DROP COLUMN IF EXISTS max_duration, DROP COLUMN IF EXISTS expect_every;
