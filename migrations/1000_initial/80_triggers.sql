-- Triggers, by table. Those of one table fire in the order of their names: a_ judges or completes the row, b_ to e_ do
-- what follows from it, f_ notes it in pgsched.audit, and z_ comes behind somebody's own that chooses the values.

-- ---- jobs

CREATE TRIGGER a_check_insert BEFORE INSERT ON pgsched.jobs
    FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_before_insert();
-- the columns that people write, and those that they must not
CREATE TRIGGER a_check_update BEFORE UPDATE OF id, name, kind, task, args, queue, priority, tags, schedule,
        timezone, run_at, starts_at, ends_at, max_runs, jitter, delete_after_run, overlap, max_buffer,
        retry_within, misfire_after, catch_up, max_catch_up, catch_up_window, start_deadline, max_attempts,
        timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter, success_codes, retry_codes,
        dead_codes, concurrency_key, concurrency_limit, after_jobs, paused, paused_at, paused_by, paused_reason,
        resume_from, declared_by, description, owner, created_at, updated_at,
        keep, alert_after_failures, max_lateness, max_duration, expect_every
    ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_before_update();
CREATE TRIGGER a_refuse_keep BEFORE INSERT OR UPDATE OF keep ON pgsched.jobs
    FOR EACH ROW WHEN (NEW.keep IS NOT NULL) EXECUTE FUNCTION pgsched.refuse_keep();
CREATE TRIGGER a_refuse_watch BEFORE INSERT OR UPDATE OF alert_after_failures, max_lateness, max_duration, expect_every
    ON pgsched.jobs FOR EACH ROW
    WHEN (NEW.alert_after_failures IS NOT NULL OR NEW.max_lateness IS NOT NULL OR NEW.max_duration IS NOT NULL
          OR NEW.expect_every IS NOT NULL) EXECUTE FUNCTION pgsched.jobs_refuse_watch();
CREATE TRIGGER b_high_water_mark BEFORE UPDATE OF decided_until ON pgsched.jobs
    FOR EACH ROW WHEN (NEW.decided_until < OLD.decided_until) EXECUTE FUNCTION pgsched.jobs_high_water_mark();
-- tick_advance sets pgsched.ticks for its transaction
CREATE TRIGGER b_plan_again BEFORE UPDATE OF next_run_at ON pgsched.jobs
    FOR EACH ROW WHEN (current_setting('pgsched.ticks', true) IS DISTINCT FROM 'on' AND NEW.error IS NULL
                       AND NEW.next_run_at IS DISTINCT FROM OLD.next_run_at
                       AND (NEW.next_run_at IS NULL OR NEW.next_run_at > clock_timestamp()))
    EXECUTE FUNCTION pgsched.jobs_plan_again();
CREATE TRIGGER c_notify_insert AFTER INSERT ON pgsched.jobs
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.jobs_notify();
CREATE TRIGGER c_notify_update AFTER UPDATE OF schedule, timezone, run_at, starts_at, ends_at, max_runs, paused,
        jitter, overlap ON pgsched.jobs
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.jobs_notify();
CREATE TRIGGER d_after_delete AFTER DELETE ON pgsched.jobs
    FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_after_delete();
-- AFTER: what is wrong by itself is said first
CREATE TRIGGER e_refuse_unstarted AFTER INSERT OR UPDATE OF schedule, jitter, overlap ON pgsched.jobs FOR EACH ROW
    WHEN (NEW.jitter > '0' AND NEW.overlap IN ('replace', 'terminate'))
    EXECUTE FUNCTION pgsched.jobs_refuse_unstarted();
CREATE TRIGGER e_rekey AFTER UPDATE OF concurrency_key, concurrency_limit ON pgsched.jobs
    FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_rekey();
CREATE TRIGGER f_audit_insert AFTER INSERT ON pgsched.jobs REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_jobs_added();
-- the columns that people write, and none that the leader does
CREATE TRIGGER f_audit_update AFTER UPDATE OF name, kind, task, args, queue, priority, tags, schedule, timezone,
        run_at, starts_at, ends_at, max_runs, jitter, delete_after_run, overlap, max_buffer, retry_within, misfire_after,
        catch_up, max_catch_up, catch_up_window, start_deadline, max_attempts, timeout, kill_after, backoff, backoff_base,
        backoff_max, backoff_jitter, success_codes, retry_codes, dead_codes, concurrency_key, concurrency_limit, after_jobs,
        paused, paused_by, paused_reason, resume_from, declared_by, description, owner,
        keep, alert_after_failures, max_lateness, max_duration, expect_every
    ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION pgsched.audit_jobs_changed();
CREATE TRIGGER f_audit_delete AFTER DELETE ON pgsched.jobs REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_jobs_gone();
-- after the triggers that judge the rest of the row
CREATE TRIGGER z_after_jobs_insert BEFORE INSERT ON pgsched.jobs
    FOR EACH ROW WHEN (cardinality(NEW.after_jobs) > 0) EXECUTE FUNCTION pgsched.jobs_after_jobs();
CREATE TRIGGER z_after_jobs_update BEFORE UPDATE OF after_jobs ON pgsched.jobs
    FOR EACH ROW WHEN (cardinality(NEW.after_jobs) > 0) EXECUTE FUNCTION pgsched.jobs_after_jobs();

CREATE TRIGGER a_complete BEFORE INSERT OR UPDATE ON pgsched.job_calendars
    FOR EACH ROW EXECUTE FUNCTION pgsched.job_calendars_before();
CREATE TRIGGER b_plan_again AFTER INSERT OR UPDATE OR DELETE ON pgsched.job_calendars
    FOR EACH ROW EXECUTE FUNCTION pgsched.job_calendars_after();

CREATE TRIGGER a_check_instants AFTER INSERT OR UPDATE OF from_at, to_at, anchor_at ON pgsched.backfills
    FOR EACH ROW WHEN (NEW.from_at NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'
        OR NEW.to_at NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'
        OR NEW.anchor_at NOT BETWEEN '1900-01-01 00:00Z' AND '9000-01-01 00:00Z')
    EXECUTE FUNCTION pgsched.backfills_refuse_instants();
CREATE TRIGGER f_audit AFTER INSERT ON pgsched.backfills FOR EACH ROW EXECUTE FUNCTION pgsched.audit_backfills();

-- ---- runs

CREATE TRIGGER a_check_insert BEFORE INSERT ON pgsched.runs
    FOR EACH ROW WHEN (NEW.checked IS NOT TRUE) EXECUTE FUNCTION pgsched.runs_before_insert();
CREATE TRIGGER a_refuse_key BEFORE INSERT ON pgsched.runs
    FOR EACH ROW WHEN (NEW.idempotency_key IS NOT NULL) EXECUTE FUNCTION pgsched.refuse_untaken_key();
CREATE TRIGGER a_refuse_owner BEFORE INSERT ON pgsched.runs
    FOR EACH ROW WHEN (NEW.kind = 'sql') EXECUTE FUNCTION pgsched.runs_owner();
-- Not for what the hot statements write: the two below see to instants and sizes, and cost nothing where these are right.
CREATE TRIGGER a_check_update AFTER UPDATE OF kind, task, args, queue, priority, max_attempts, scheduled_at, origin,
        owner, timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter
    ON pgsched.runs FOR EACH ROW EXECUTE FUNCTION pgsched.runs_after_update();
CREATE TRIGGER a_check_instants AFTER UPDATE OF job_id, scheduled_at, available_at, expires_at ON pgsched.runs
    FOR EACH ROW WHEN ((NEW.job_id IS NULL) <> (NEW.scheduled_at IS NULL)
        OR NEW.available_at NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'
        OR NEW.scheduled_at NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'
        OR NEW.expires_at NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z')
    EXECUTE FUNCTION pgsched.runs_refuse_instants();
CREATE TRIGGER a_check_size AFTER UPDATE OF unique_key, tags, options, progress, cancel_reason ON pgsched.runs
    FOR EACH ROW WHEN (octet_length(concat(NEW.unique_key, NEW.tags, NEW.options, NEW.progress, NEW.cancel_reason)) > 4000)
    EXECUTE FUNCTION pgsched.runs_refuse_size();
CREATE TRIGGER z_phase BEFORE INSERT ON pgsched.runs FOR EACH ROW
    WHEN (NEW.state <> 'queued' OR NEW.phase <> 2 /* claimable */) EXECUTE FUNCTION pgsched.runs_born_in_phase();
CREATE TRIGGER z_phase_after AFTER UPDATE ON pgsched.runs FOR EACH ROW
    WHEN (NEW.phase <> CASE NEW.state WHEN 'running' THEN 2 WHEN 'succeeded' THEN 3 WHEN 'queued' THEN 2
        WHEN 'waiting' THEN 0 WHEN 'scheduled' THEN 1 WHEN 'dead' THEN 4 WHEN 'missed' THEN 4 ELSE 3 END)
    EXECUTE FUNCTION pgsched.runs_mend_phase();
-- Also for who replays rows (session_replication_role = replica), whose other triggers stand still.
ALTER TABLE pgsched.runs ENABLE ALWAYS TRIGGER z_phase;
ALTER TABLE pgsched.runs ENABLE ALWAYS TRIGGER z_phase_after;

CREATE TRIGGER a_hold_back AFTER INSERT ON pgsched.dependencies REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.dependencies_after_insert();
CREATE TRIGGER a_look_again AFTER DELETE ON pgsched.dependencies REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.dependencies_after_delete();
CREATE TRIGGER a_no_update BEFORE UPDATE OF run_id, parent_id ON pgsched.dependencies
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.dependencies_no_update();

CREATE TRIGGER a_met BEFORE UPDATE OF run_id ON pgsched.kept_keys
    FOR EACH ROW WHEN (NEW.scope = 'idempotency') EXECUTE FUNCTION pgsched.kept_keys_met();

-- ---- limits, pauses, retention and alerts

CREATE TRIGGER a_gate BEFORE INSERT OR UPDATE OF name, concurrency_limit, rate, rate_period, rate_burst, max_depth, on_full,
    fair, ageing ON pgsched.queues FOR EACH ROW EXECUTE FUNCTION pgsched.queues_gate();
CREATE TRIGGER a_refuse_keep BEFORE INSERT OR UPDATE OF keep ON pgsched.queues
    FOR EACH ROW WHEN (NEW.keep IS NOT NULL) EXECUTE FUNCTION pgsched.refuse_keep();
CREATE TRIGGER b_removed BEFORE DELETE ON pgsched.queues FOR EACH ROW EXECUTE FUNCTION pgsched.limits_changed();
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE OF name, concurrency_limit, rate, rate_period, rate_burst,
    max_depth, on_full, fair, ageing, keep ON pgsched.queues FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('queue');

CREATE TRIGGER a_changed BEFORE INSERT OR DELETE OR UPDATE OF name, concurrency, rate, rate_period, rate_burst, ordered,
    weight ON pgsched.limits FOR EACH ROW EXECUTE FUNCTION pgsched.limits_changed();
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE OF name, concurrency, rate, rate_period, rate_burst, ordered,
    weight ON pgsched.limits FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('limit');

CREATE TRIGGER a_notify AFTER UPDATE OR DELETE ON pgsched.pauses
    FOR EACH ROW EXECUTE FUNCTION pgsched.pauses_notify();
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE ON pgsched.pauses
    FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('pause');

CREATE TRIGGER a_refuse_keep BEFORE INSERT OR UPDATE OF keep ON pgsched.retention
    FOR EACH ROW EXECUTE FUNCTION pgsched.refuse_keep();
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE ON pgsched.retention
    FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('retention');

CREATE TRIGGER a_notify_insert AFTER INSERT ON pgsched.alerts FOR EACH ROW EXECUTE FUNCTION pgsched.alerts_notify();
CREATE TRIGGER a_notify_update AFTER UPDATE OF closed_at ON pgsched.alerts FOR EACH ROW
    WHEN (OLD.closed_at IS NULL AND NEW.closed_at IS NOT NULL) EXECUTE FUNCTION pgsched.alerts_notify();
