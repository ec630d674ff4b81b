-- Triggers that name the columns of jobs.
DROP TRIGGER a_check_update ON pgsched.jobs;
CREATE TRIGGER a_check_update BEFORE UPDATE OF id, name, kind, task, args, queue, priority, tags, schedule,
        timezone, run_at, starts_at, ends_at, max_runs, jitter, delete_after_run, overlap, max_buffer,
        retry_within, misfire_after, catch_up, max_catch_up, catch_up_window, start_deadline, max_attempts,
        timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter, success_codes, retry_codes,
        dead_codes, concurrency_key, concurrency_limit, after_jobs, paused, paused_at, paused_by, paused_reason,
        resume_from, declared_by, description, owner, created_at, updated_at,
        keep, alert_after_failures, max_lateness, max_duration, expect_every,
    finish_by, mode, calendar, on_excluded, after_match, pause_after_failures, ping_url, alert_to
    ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_before_update();
DROP TRIGGER a_refuse_watch ON pgsched.jobs;
CREATE TRIGGER a_refuse_watch BEFORE INSERT OR UPDATE OF alert_after_failures, max_lateness, max_duration, expect_every, finish_by
    ON pgsched.jobs FOR EACH ROW
    WHEN (NEW.alert_after_failures IS NOT NULL OR NEW.max_lateness IS NOT NULL OR NEW.max_duration IS NOT NULL
          OR NEW.expect_every IS NOT NULL OR NEW.finish_by IS NOT NULL) EXECUTE FUNCTION pgsched.jobs_refuse_watch();
DROP TRIGGER c_notify_update ON pgsched.jobs;
CREATE TRIGGER c_notify_update AFTER UPDATE OF schedule, timezone, run_at, starts_at, ends_at, max_runs, paused,
        jitter, overlap, mode, calendar, on_excluded ON pgsched.jobs
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.jobs_notify();
DROP TRIGGER f_audit_update ON pgsched.jobs;
CREATE TRIGGER f_audit_update AFTER UPDATE OF name, kind, task, args, queue, priority, tags, schedule, timezone,
        run_at, starts_at, ends_at, max_runs, jitter, delete_after_run, overlap, max_buffer, retry_within, misfire_after,
        catch_up, max_catch_up, catch_up_window, start_deadline, max_attempts, timeout, kill_after, backoff, backoff_base,
        backoff_max, backoff_jitter, success_codes, retry_codes, dead_codes, concurrency_key, concurrency_limit, after_jobs,
        paused, paused_by, paused_reason, resume_from, declared_by, description, owner,
        keep, alert_after_failures, max_lateness, max_duration, expect_every,
    finish_by, mode, calendar, on_excluded, after_match, pause_after_failures, ping_url, alert_to
    ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION pgsched.audit_jobs_changed();

CREATE TRIGGER a_refuse_watch BEFORE INSERT OR UPDATE ON pgsched.alert_defaults
    FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_refuse_watch();
CREATE TRIGGER b_refuse BEFORE INSERT OR UPDATE ON pgsched.alert_defaults
    FOR EACH ROW EXECUTE FUNCTION pgsched.alert_defaults_refuse();
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE ON pgsched.alert_defaults
    FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('alert');
