-- What is wrong with a job that a person wrote, the first thing found; what the database itself keeps is not asked.
CREATE OR REPLACE FUNCTION pgsched.job_error(j pgsched.jobs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(
        pgsched.bad_text('name', j.name, 200),
        pgsched.not_one_of('kind', j.kind, ARRAY['task', 'command', 'shell', 'sql', 'http']),
        CASE WHEN j.task IS NULL OR btrim(j.task) = '' THEN 'task: must not be empty'
             WHEN length(j.task) > 65536 THEN
                 format('task: %s characters, at most 65536 are allowed', length(j.task)) END,
        CASE WHEN j.kind = 'task' THEN pgsched.bad_text('task', j.task, 200) END,
        CASE WHEN j.kind = 'http' THEN pgsched.http_url_error(j.task) END,
        pgsched.args_error(j.kind, j.args),
        pgsched.slot_token_error(j.kind, j.task, j.args),
        CASE WHEN j.queue IS NOT NULL THEN pgsched.bad_text('queue', j.queue, 100) END,
        CASE WHEN j.priority IS NOT NULL THEN pgsched.out_of_range('priority', j.priority, 0, 9) END,
        pgsched.timezone_error(j.timezone),
        pgsched.schedule_error(j.schedule),
        CASE WHEN j.schedule IS NOT NULL AND j.run_at IS NOT NULL THEN
            'run_at: a job has either a schedule or run_at, not both' END,
        pgsched.bad_instant('run_at', j.run_at),
        pgsched.bad_instant('starts_at', j.starts_at),
        pgsched.bad_instant('ends_at', j.ends_at),
        CASE WHEN j.ends_at <= j.starts_at THEN 'ends_at: must be later than starts_at' END,
        CASE WHEN j.schedule IS NULL AND (coalesce(j.run_at, now()) < j.starts_at
                                          OR coalesce(j.run_at, now()) > j.ends_at) THEN
            'run_at: must lie between starts_at and ends_at' END,
        CASE WHEN j.max_runs < 1 THEN format('max_runs: %s is less than 1', j.max_runs) END,
        pgsched.bad_period('jitter', j.jitter),
        pgsched.not_one_of('overlap', j.overlap,
            ARRAY['allow', 'skip', 'buffer_one', 'buffer_all', 'replace', 'terminate']),
        pgsched.out_of_range('max_buffer', j.max_buffer, 1, 100000),
        pgsched.bad_interval('retry_within', j.retry_within, '0'),
        CASE WHEN j.retry_within IS NOT NULL AND j.overlap <> 'skip' THEN
            format('retry_within: is for overlap "skip" alone, not "%s"', j.overlap) END,
        pgsched.bad_period('misfire_after', j.misfire_after),
        pgsched.not_one_of('catch_up', j.catch_up, ARRAY['latest', 'skip', 'earliest', 'all']),
        pgsched.out_of_range('max_catch_up', j.max_catch_up, 1, 10000),
        pgsched.bad_period('catch_up_window', j.catch_up_window),
        pgsched.bad_interval('start_deadline', j.start_deadline, '1 second'),
        CASE WHEN j.start_deadline <= j.jitter THEN 'start_deadline: must be longer than jitter' END,
        CASE WHEN j.max_attempts IS NOT NULL THEN pgsched.out_of_range('max_attempts', j.max_attempts, 1, 1000) END,
        pgsched.bad_interval('timeout', j.timeout, '1 millisecond'),
        pgsched.bad_interval('kill_after', j.kill_after, '0'),
        CASE WHEN j.backoff IS NOT NULL THEN
            pgsched.not_one_of('backoff', j.backoff, ARRAY['exponential', 'fixed', 'linear']) END,
        pgsched.bad_interval('backoff_base', j.backoff_base, '0'),
        pgsched.bad_interval('backoff_max', j.backoff_max, '0'),
        CASE WHEN j.backoff_jitter IS NOT NULL THEN
            pgsched.out_of_range('backoff_jitter', j.backoff_jitter::numeric, 0, 1) END,
        CASE WHEN j.success_codes IS NULL THEN 'success_codes: must not be null' END,
        pgsched.bad_codes('success_codes', j.success_codes),
        pgsched.bad_codes('retry_codes', j.retry_codes),
        pgsched.bad_codes('dead_codes', j.dead_codes),
        CASE WHEN j.delete_after_run IS NULL THEN 'delete_after_run: must not be null' END,
        CASE WHEN j.delete_after_run AND j.schedule IS NOT NULL THEN
            'delete_after_run: is for jobs that run once; this one has a schedule' END,
        CASE WHEN j.paused IS NULL THEN 'paused: must not be null' END,
        pgsched.bad_length('paused_by', j.paused_by, 200),
        pgsched.bad_length('paused_reason', j.paused_reason, 10000),
        pgsched.bad_length('description', j.description, 65536),
        pgsched.bad_tags(j.tags),
        pgsched.not_one_of('resume_from', j.resume_from, ARRAY['now', 'pause']),
        CASE WHEN j.concurrency_key IS NOT NULL THEN pgsched.bad_text('concurrency_key', j.concurrency_key, 200) END,
        CASE WHEN j.concurrency_limit IS NOT NULL THEN
            pgsched.out_of_range('concurrency_limit', j.concurrency_limit, 0, 1000000) END,
        pgsched.not_one_of('mode', j.mode, ARRAY['run', 'shadow']),
        pgsched.not_one_of('on_excluded', j.on_excluded, ARRAY['skip', 'next_business_day', 'previous']),
        pgsched.not_one_of('after_match', j.after_match, ARRAY['same', 'latest', 'since_last']),
        CASE WHEN j.pause_after_failures IS NOT NULL THEN
            pgsched.out_of_range('pause_after_failures', j.pause_after_failures, 1, 1000) END,
        CASE WHEN j.ping_url IS NOT NULL THEN
            replace(pgsched.http_url_error(j.ping_url), 'task:', 'ping_url:') END
    )
$$;

CREATE OR REPLACE FUNCTION pgsched.jobs_refuse_watch() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := coalesce(
        CASE WHEN NEW.alert_after_failures IS NOT NULL THEN
            pgsched.out_of_range('alert_after_failures', NEW.alert_after_failures, 1, 1000) END,
        pgsched.bad_interval('max_lateness', NEW.max_lateness, '1 second'),
        pgsched.bad_interval('max_duration', NEW.max_duration, '1 second'),
        pgsched.bad_interval('expect_every', NEW.expect_every, '1 second'),
        pgsched.bad_interval('finish_by', NEW.finish_by, '1 second'));
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'jobs');
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION pgsched.jobs_before_update() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    was pgsched.jobs := OLD;
    resumed text := CASE WHEN OLD.paused AND NOT NEW.paused THEN NEW.resume_from END;
BEGIN
    NEW := pgsched.edit_allowed(OLD, NEW);
    NEW.id := OLD.id;
    NEW.created_at := OLD.created_at;
    NEW.updated_at := moment;
    NEW := pgsched.edit_pause(OLD, NEW, moment);
    IF OLD.mode = 'shadow' AND NEW.mode = 'run' AND NOT OLD.paused THEN
        was := pgsched.leave_shadow(OLD, moment);
        NEW.decided_until := was.decided_until;
        NEW.next_run_at := was.next_run_at;
    END IF;
    IF NEW.schedule IS NULL THEN
        RETURN pgsched.edit_once(was, NEW, moment, resumed);
    END IF;
    RETURN pgsched.edit_schedule(was, NEW, moment, resumed);
END $$;
