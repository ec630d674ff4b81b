-- What is wrong with a list of named sinks (jobs.alert_to). The names are those of the processes' own settings.
CREATE FUNCTION pgsched.bad_targets(field text, names text[]) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN array_ndims(names) > 1 THEN format('%s: must be a plain list', field)
        WHEN cardinality(names) > 20 THEN format('%s: %s names, at most 20 are allowed', field, cardinality(names))
        ELSE (SELECT format('%s: "%s" is no name of 1-63 characters a-z, 0-9, - and _', field, left(n.name, 60))
              FROM unnest(names) n(name) WHERE (n.name ~ '^[a-z0-9_-]{1,63}$') IS NOT TRUE LIMIT 1)
    END
$$;

-- What is wrong with a job that a person wrote, the first thing found; what the database itself keeps is not asked. A column
-- that is null or has its default is right, and is not looked at where that spares a call: a job has many of these, and
-- thousands of jobs may be written at once (pgsched apply).
CREATE OR REPLACE FUNCTION pgsched.job_error(j pgsched.jobs) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- without a subquery: so the functions are prepared once for all jobs of a transaction
    problem text := coalesce(
        pgsched.bad_text('name', j.name, 200),
        pgsched.not_one_of('kind', j.kind, ARRAY['task', 'command', 'shell', 'sql', 'http']),
        CASE WHEN j.task IS NULL OR btrim(j.task) = '' THEN 'task: must not be empty'
             WHEN length(j.task) > 65536 THEN
                 format('task: %s characters, at most 65536 are allowed', length(j.task)) END,
        CASE WHEN j.kind = 'task' THEN pgsched.bad_text('task', j.task, 200) END,
        CASE WHEN j.kind = 'http' THEN pgsched.http_url_error(j.task) END,
        pgsched.args_error(j.kind, j.args),
        CASE WHEN strpos(j.task, '{slot:') > 0 OR strpos(j.args::text, '{slot:') > 0 THEN
            pgsched.slot_token_error(j.kind, j.task, j.args) END,
        CASE WHEN j.queue IS NOT NULL THEN pgsched.bad_text('queue', j.queue, 100) END,
        CASE WHEN j.priority IS NOT NULL THEN pgsched.out_of_range('priority', j.priority, 0, 9) END,
        CASE WHEN j.timezone IS DISTINCT FROM 'UTC' THEN pgsched.timezone_error(j.timezone) END,
        CASE WHEN j.schedule IS NOT NULL THEN pgsched.schedule_error(j.schedule) END,
        CASE WHEN j.schedule IS NOT NULL AND j.run_at IS NOT NULL THEN
            'run_at: a job has either a schedule or run_at, not both' END,
        CASE WHEN j.run_at IS NOT NULL THEN pgsched.bad_instant('run_at', j.run_at) END,
        CASE WHEN j.starts_at IS NOT NULL THEN pgsched.bad_instant('starts_at', j.starts_at) END,
        CASE WHEN j.ends_at IS NOT NULL THEN pgsched.bad_instant('ends_at', j.ends_at) END,
        CASE WHEN j.ends_at <= j.starts_at THEN 'ends_at: must be later than starts_at' END,
        CASE WHEN j.schedule IS NULL AND (coalesce(j.run_at, now()) < j.starts_at
                                          OR coalesce(j.run_at, now()) > j.ends_at) THEN
            'run_at: must lie between starts_at and ends_at' END,
        CASE WHEN j.max_runs < 1 THEN format('max_runs: %s is less than 1', j.max_runs) END,
        CASE WHEN j.jitter IS DISTINCT FROM '0' THEN pgsched.bad_period('jitter', j.jitter) END,
        CASE WHEN j.overlap IS DISTINCT FROM 'skip' THEN pgsched.not_one_of('overlap', j.overlap,
            ARRAY['allow', 'skip', 'buffer_one', 'buffer_all', 'replace', 'terminate']) END,
        CASE WHEN j.max_buffer IS DISTINCT FROM 100 THEN pgsched.out_of_range('max_buffer', j.max_buffer, 1, 100000) END,
        CASE WHEN j.retry_within IS NOT NULL THEN pgsched.bad_interval('retry_within', j.retry_within, '0') END,
        CASE WHEN j.retry_within IS NOT NULL AND j.overlap <> 'skip' THEN
            format('retry_within: is for overlap "skip" alone, not "%s"', j.overlap) END,
        CASE WHEN j.misfire_after IS DISTINCT FROM '60 seconds' THEN pgsched.bad_period('misfire_after', j.misfire_after) END,
        CASE WHEN j.catch_up IS DISTINCT FROM 'latest' THEN
            pgsched.not_one_of('catch_up', j.catch_up, ARRAY['latest', 'skip', 'earliest', 'all']) END,
        CASE WHEN j.max_catch_up IS DISTINCT FROM 100 THEN pgsched.out_of_range('max_catch_up', j.max_catch_up, 1, 10000) END,
        CASE WHEN j.catch_up_window IS DISTINCT FROM '1 day' THEN pgsched.bad_period('catch_up_window', j.catch_up_window) END,
        CASE WHEN j.start_deadline IS NOT NULL THEN pgsched.bad_interval('start_deadline', j.start_deadline, '1 second') END,
        CASE WHEN j.start_deadline <= j.jitter THEN 'start_deadline: must be longer than jitter' END,
        CASE WHEN j.max_attempts IS NOT NULL THEN pgsched.out_of_range('max_attempts', j.max_attempts, 1, 1000) END,
        CASE WHEN j.timeout IS NOT NULL THEN pgsched.bad_interval('timeout', j.timeout, '1 millisecond') END,
        CASE WHEN j.kill_after IS NOT NULL THEN pgsched.bad_interval('kill_after', j.kill_after, '0') END,
        CASE WHEN j.backoff IS NOT NULL THEN
            pgsched.not_one_of('backoff', j.backoff, ARRAY['exponential', 'fixed', 'linear']) END,
        CASE WHEN j.backoff_base IS NOT NULL THEN pgsched.bad_interval('backoff_base', j.backoff_base, '0') END,
        CASE WHEN j.backoff_max IS NOT NULL THEN pgsched.bad_interval('backoff_max', j.backoff_max, '0') END,
        CASE WHEN j.backoff_jitter IS NOT NULL THEN
            pgsched.out_of_range('backoff_jitter', j.backoff_jitter::numeric, 0, 1) END,
        CASE WHEN j.success_codes IS NULL THEN 'success_codes: must not be null' END,
        CASE WHEN j.success_codes IS DISTINCT FROM '{0}' THEN pgsched.bad_codes('success_codes', j.success_codes) END,
        CASE WHEN j.retry_codes IS NOT NULL THEN pgsched.bad_codes('retry_codes', j.retry_codes) END,
        CASE WHEN j.dead_codes IS NOT NULL THEN pgsched.bad_codes('dead_codes', j.dead_codes) END,
        CASE WHEN j.delete_after_run IS NULL THEN 'delete_after_run: must not be null' END,
        CASE WHEN j.delete_after_run AND j.schedule IS NOT NULL THEN
            'delete_after_run: is for jobs that run once; this one has a schedule' END,
        CASE WHEN j.paused IS NULL THEN 'paused: must not be null' END,
        CASE WHEN j.paused_by IS NOT NULL THEN pgsched.bad_length('paused_by', j.paused_by, 200) END,
        CASE WHEN j.paused_reason IS NOT NULL THEN pgsched.bad_length('paused_reason', j.paused_reason, 10000) END,
        CASE WHEN j.description IS NOT NULL THEN pgsched.bad_length('description', j.description, 65536) END,
        CASE WHEN j.tags IS NOT NULL THEN pgsched.bad_tags(j.tags) END,
        CASE WHEN j.resume_from IS DISTINCT FROM 'now' THEN
            pgsched.not_one_of('resume_from', j.resume_from, ARRAY['now', 'pause']) END,
        CASE WHEN j.concurrency_key IS NOT NULL THEN pgsched.bad_text('concurrency_key', j.concurrency_key, 200) END,
        CASE WHEN j.concurrency_limit IS NOT NULL THEN
            pgsched.out_of_range('concurrency_limit', j.concurrency_limit, 0, 1000000) END,
        CASE WHEN j.mode IS DISTINCT FROM 'run' THEN pgsched.not_one_of('mode', j.mode, ARRAY['run', 'shadow']) END,
        CASE WHEN j.on_excluded IS DISTINCT FROM 'skip' THEN
            pgsched.not_one_of('on_excluded', j.on_excluded, ARRAY['skip', 'next_business_day', 'previous']) END,
        CASE WHEN j.after_match IS DISTINCT FROM 'same' THEN
            pgsched.not_one_of('after_match', j.after_match, ARRAY['same', 'latest', 'since_last']) END,
        CASE WHEN j.pause_after_failures IS NOT NULL THEN
            pgsched.out_of_range('pause_after_failures', j.pause_after_failures, 1, 1000) END,
        -- beside it the event and the id of a run stand in the URL, of at most 8192 characters
        CASE WHEN length(j.ping_url) > 8000 THEN
                 format('ping_url: %s characters, at most 8000 are allowed', length(j.ping_url))
             WHEN j.ping_url IS NOT NULL THEN
                 replace(split_part(pgsched.http_url_error(j.ping_url), ';', 1), 'task:', 'ping_url:') END,
        CASE WHEN j.alert_to IS NOT NULL THEN pgsched.bad_targets('alert_to', j.alert_to) END
    );
BEGIN
    IF problem IS NULL AND j.calendar IS NOT NULL
        AND NOT EXISTS (SELECT FROM pgsched.calendars c WHERE c.name = j.calendar) THEN
        RETURN format('calendar: there is no calendar named "%s"%s', left(j.calendar, 200),
            pgsched.did_you_mean(left(j.calendar, 200), ARRAY(SELECT c.name FROM pgsched.calendars c ORDER BY c.name LIMIT 1000)));
    END IF;
    RETURN problem;
END $$;

-- 0 is allowed: that one is not watched, whatever the defaults say.
CREATE OR REPLACE FUNCTION pgsched.jobs_refuse_watch() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := coalesce(
        CASE WHEN NEW.alert_after_failures IS NOT NULL THEN
            pgsched.out_of_range('alert_after_failures', NEW.alert_after_failures, 0, 1000) END,
        pgsched.bad_interval('max_lateness', nullif(NEW.max_lateness, '0'), '1 second'),
        pgsched.bad_interval('max_duration', nullif(NEW.max_duration, '0'), '1 second'),
        pgsched.bad_interval('expect_every', nullif(NEW.expect_every, '0'), '1 second'),
        pgsched.bad_interval('finish_by', nullif(NEW.finish_by, '0'), '1 second'));
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, TG_TABLE_NAME);
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION pgsched.alert_defaults_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := coalesce(
        pgsched.bad_targets('alert_to', NEW.alert_to),
        CASE WHEN NEW.dead_runs IS NOT NULL THEN pgsched.out_of_range('dead_runs', NEW.dead_runs, 1, 10000) END,
        CASE WHEN NEW.dead_runs_within IS NULL THEN 'dead_runs_within: must not be null'
             WHEN NEW.dead_runs_within NOT BETWEEN '1 second' AND '31 days' THEN
                 format('dead_runs_within: %s is out of range 1 second-31 days', NEW.dead_runs_within) END);
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, TG_TABLE_NAME);
    END IF;
    RETURN NEW;
END $$;

-- A job that is resumed begins its count of failures anew (pgsched.pause_failing).
CREATE OR REPLACE FUNCTION pgsched.edit_pause(was pgsched.jobs, j pgsched.jobs, moment timestamptz) RETURNS pgsched.jobs
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF j.paused THEN
        j.paused_at := CASE WHEN was.paused THEN was.paused_at ELSE moment END;
        j.paused_by := coalesce(j.paused_by, CASE WHEN was.paused THEN was.paused_by END, session_user);
    ELSE
        j.paused_at := NULL;
        j.paused_by := NULL;
        j.paused_reason := NULL;
        j.resume_from := 'now';
        j.resumed_at := CASE WHEN was.paused THEN moment ELSE was.resumed_at END;
    END IF;
    RETURN j;
END $$;

CREATE OR REPLACE FUNCTION pgsched.jobs_before_insert() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    problem text := coalesce(pgsched.job_error(NEW), pgsched.bad_owner(NEW.owner));
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'jobs');
    END IF;
    NEW.created_at := moment;
    NEW.updated_at := moment;
    NEW.anchor_at := coalesce(NEW.starts_at, moment);
    NEW.run_count := 0;
    NEW.error := NULL;
    NEW.error_at := NULL;
    NEW.shifts := NULL;
    IF NEW.schedule IS NULL THEN
        NEW.run_at := coalesce(NEW.run_at, moment);
        NEW.decided_until := '-infinity';
        -- where a calendar shifts it to, the leader finds out
        NEW.next_run_at := CASE WHEN NEW.on_excluded = 'skip' THEN NEW.run_at ELSE least(NEW.run_at, moment) END;
    ELSE
        NEW.decided_until := moment;  -- only slots after this instant exist
        NEW.next_run_at := moment;  -- due at once: the leader plans it
    END IF;
    IF NEW.paused THEN
        NEW.paused_at := moment;
        NEW.paused_by := coalesce(NEW.paused_by, session_user);
    ELSE
        NEW.paused_at := NULL;
        NEW.paused_by := NULL;
        NEW.paused_reason := NULL;
        NEW.resume_from := 'now';
    END IF;
    RETURN NEW;
END $$;

-- The slots of a job with a schedule after an edit. `resumed`: from what the edit resumes it, null where it does not.
CREATE OR REPLACE FUNCTION pgsched.edit_schedule(was pgsched.jobs, j pgsched.jobs, moment timestamptz, resumed text)
RETURNS pgsched.jobs LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    limits_moved boolean := (j.ends_at, j.max_runs) IS DISTINCT FROM (was.ends_at, was.max_runs);
BEGIN
    IF (j.schedule, j.timezone, j.run_at, j.starts_at)
       IS DISTINCT FROM (was.schedule, was.timezone, was.run_at, was.starts_at) THEN
        PERFORM pgsched.pass_over(was, moment, true);
        j.anchor_at := coalesce(j.starts_at, moment);
        j.decided_until := greatest(was.decided_until, moment);
        IF j.decided_until > moment THEN
            PERFORM pgsched.pass_over_ahead(j, moment);
        END IF;
        j.error := NULL;
        j.error_at := NULL;
        j.next_run_at := moment;
    ELSIF was.next_run_at IS NULL AND was.error IS NULL THEN  -- it had ended
        IF limits_moved AND pgsched.pass_over_end(was, j, moment) THEN
            j.decided_until := greatest(was.decided_until, least(moment, j.ends_at));
            j.next_run_at := moment;
        END IF;
    ELSIF resumed = 'now' THEN
        was.ends_at := j.ends_at;
        PERFORM pgsched.pass_over(was, moment, false);
        -- never beyond the end: what comes behind it is passed over by the edit that puts the end off
        j.decided_until := greatest(was.decided_until, least(moment, j.ends_at));
        j.next_run_at := moment;
    ELSIF resumed = 'pause' THEN
        j.next_run_at := coalesce(was.next_run_at, moment);  -- the mark stays: catch_up decides what came since
    ELSIF limits_moved THEN
        j.next_run_at := moment;  -- the leader plans it again
    END IF;
    IF (j.calendar, j.on_excluded) IS DISTINCT FROM (was.calendar, was.on_excluded) THEN
        -- which nominal slots are decided depends on the calendar that held until now: without one, those up to the mark
        IF was.shifts IS NULL AND was.on_excluded = 'skip' AND j.on_excluded <> 'skip' THEN
            j.shifts := jsonb_build_object('at', to_jsonb(j.decided_until));
        END IF;
        IF j.next_run_at IS NOT NULL OR pgsched.may_go_on(j) THEN
            j.next_run_at := moment;
        END IF;
    END IF;
    IF (j.shifts ->> 'at')::timestamptz > j.decided_until THEN
        j.shifts := NULL;  -- the job had yet to start then
    END IF;
    RETURN j;
END $$;

-- The slot of a job that runs once after an edit: what is passed over is decided, neither the old slots nor one among them
-- may come again.
CREATE OR REPLACE FUNCTION pgsched.edit_once(was pgsched.jobs, j pgsched.jobs, moment timestamptz, resumed text)
RETURNS pgsched.jobs LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- its slot is run_at, whatever its time zone
    retimed boolean := was.schedule IS NOT NULL OR j.run_at IS DISTINCT FROM was.run_at;
    replanned boolean := retimed OR (j.timezone, j.starts_at, j.calendar, j.on_excluded)
        IS DISTINCT FROM (was.timezone, was.starts_at, was.calendar, was.on_excluded);
BEGIN
    IF retimed OR resumed = 'now' THEN
        IF NOT retimed THEN
            was.ends_at := j.ends_at;
        END IF;
        PERFORM pgsched.pass_over(was, moment, retimed);
        j.decided_until := greatest(was.decided_until, CASE
            WHEN was.schedule IS NOT NULL THEN moment - interval '1 microsecond'
            -- not one that a calendar has shifted to later
            WHEN was.run_at <= moment AND (retimed OR coalesce(was.next_run_at <= moment, true)) THEN was.run_at END);
    END IF;
    IF retimed THEN
        j.run_at := coalesce(j.run_at, moment);
        IF j.run_at <= j.decided_until THEN
            PERFORM pgsched.raise_bad_value(format(
                'run_at: %s is not later than %s, which is already decided', j.run_at, j.decided_until), 'jobs');
        END IF;
    END IF;
    IF replanned THEN
        j.error := NULL;
        j.error_at := NULL;
    END IF;
    IF replanned OR resumed IS NOT NULL THEN
        j.next_run_at := CASE WHEN j.run_at > j.decided_until THEN
            CASE WHEN j.on_excluded = 'skip' THEN j.run_at ELSE least(j.run_at, moment) END END;
    END IF;
    RETURN j;
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
