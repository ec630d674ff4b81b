-- Alerts: what a job may be watched for, and the incidents that were found. The leader looks every few seconds; while
-- there is no leader, any worker does (sql/alert_*.sql).

ALTER TABLE pgsched.jobs
    ADD COLUMN alert_after_failures integer,
    ADD COLUMN max_lateness interval,
    ADD COLUMN max_duration interval,
    ADD COLUMN expect_every interval;
CREATE INDEX jobs_watched ON pgsched.jobs (id) WHERE alert_after_failures IS NOT NULL OR max_lateness IS NOT NULL
    OR max_duration IS NOT NULL OR expect_every IS NOT NULL;

CREATE FUNCTION pgsched.jobs_refuse_watch() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := coalesce(
        CASE WHEN NEW.alert_after_failures IS NOT NULL THEN
            pgsched.out_of_range('alert_after_failures', NEW.alert_after_failures, 1, 1000) END,
        pgsched.bad_interval('max_lateness', NEW.max_lateness, '1 second'),
        pgsched.bad_interval('max_duration', NEW.max_duration, '1 second'),
        pgsched.bad_interval('expect_every', NEW.expect_every, '1 second'));
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'jobs');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_refuse_watch BEFORE INSERT OR UPDATE OF alert_after_failures, max_lateness, max_duration, expect_every
    ON pgsched.jobs FOR EACH ROW
    WHEN (NEW.alert_after_failures IS NOT NULL OR NEW.max_lateness IS NOT NULL OR NEW.max_duration IS NOT NULL
          OR NEW.expect_every IS NOT NULL) EXECUTE FUNCTION pgsched.jobs_refuse_watch();

-- The columns that people write, with those of 30_retention.sql and of this file.
CREATE OR REPLACE TRIGGER a_check_update BEFORE UPDATE OF id, name, kind, task, args, queue, priority, tags, schedule,
        timezone, run_at, starts_at, ends_at, max_runs, jitter, delete_after_run, overlap, max_buffer,
        retry_within, misfire_after, catch_up, max_catch_up, catch_up_window, start_deadline, max_attempts,
        timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter, success_codes, retry_codes,
        dead_codes, concurrency_key, concurrency_limit, after_jobs, paused, paused_at, paused_by, paused_reason,
        resume_from, declared_by, description, owner, created_at, updated_at,
        keep, alert_after_failures, max_lateness, max_duration, expect_every
    ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_before_update();
CREATE OR REPLACE TRIGGER f_audit_update AFTER UPDATE OF name, kind, task, args, queue, priority, tags, schedule, timezone,
        run_at, starts_at, ends_at, max_runs, jitter, delete_after_run, overlap, max_buffer, retry_within, misfire_after,
        catch_up, max_catch_up, catch_up_window, start_deadline, max_attempts, timeout, kill_after, backoff, backoff_base,
        backoff_max, backoff_jitter, success_codes, retry_codes, dead_codes, concurrency_key, concurrency_limit, after_jobs,
        paused, paused_by, paused_reason, resume_from, declared_by, description, owner,
        keep, alert_after_failures, max_lateness, max_duration, expect_every
    ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION pgsched.audit_jobs_changed();

-- One row for each incident. job_id 0: the whole system. The row outlives its job.
CREATE TABLE pgsched.alerts (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id    bigint NOT NULL,
    job       text,
    kind      text NOT NULL CHECK (kind IN ('failures', 'lateness', 'duration', 'silence', 'no_leader', 'test')),
    opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at timestamptz,
    details   text NOT NULL,
    run_id    bigint,  -- the run that gave rise to it
    recovery  text     -- why it was closed
);
-- Two leaders, or two workers, cannot both open one.
CREATE UNIQUE INDEX alerts_open ON pgsched.alerts (job_id, kind) WHERE closed_at IS NULL;
CREATE INDEX alerts_of_job ON pgsched.alerts (job_id, id);
CREATE INDEX alerts_closed ON pgsched.alerts (closed_at) WHERE closed_at IS NOT NULL;

-- What was told, to whom: one row for each event of an incident and each sink that a process has, made by that process.
CREATE TABLE pgsched.alert_deliveries (
    alert_id     bigint NOT NULL REFERENCES pgsched.alerts ON DELETE CASCADE,
    event        text NOT NULL CHECK (event IN ('opened', 'closed')),
    sink         text NOT NULL,  -- log, or webhook or command and what tells it from others, never a secret
    attempts     integer NOT NULL DEFAULT 0,
    next_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    delivered_at timestamptz,
    error        text,
    PRIMARY KEY (alert_id, event, sink)
);
CREATE INDEX alert_deliveries_due ON pgsched.alert_deliveries (next_at) WHERE delivered_at IS NULL;

-- Who listens is told in the transaction that opens or closes the incident. Whoever may connect may listen: what a
-- handler said (details) is for those who may read the table.
CREATE FUNCTION pgsched.alerts_notify() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('pgsched_alerts', jsonb_build_object('id', NEW.id,
        'event', CASE WHEN NEW.closed_at IS NULL THEN 'opened' ELSE 'closed' END, 'kind', NEW.kind, 'job', NEW.job,
        'run_id', NEW.run_id, 'opened_at', NEW.opened_at, 'closed_at', NEW.closed_at)::text);
    RETURN NULL;
END $$;
CREATE TRIGGER a_notify_insert AFTER INSERT ON pgsched.alerts FOR EACH ROW EXECUTE FUNCTION pgsched.alerts_notify();
CREATE TRIGGER a_notify_update AFTER UPDATE OF closed_at ON pgsched.alerts FOR EACH ROW
    WHEN (OLD.closed_at IS NULL AND NEW.closed_at IS NOT NULL) EXECUTE FUNCTION pgsched.alerts_notify();
