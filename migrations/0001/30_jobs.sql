-- A job is refused at INSERT or UPDATE with the field and the reason, whoever writes it. What a person sets is
-- checked here; what the leader moves (decided_until, next_run_at, run_count, error) fires no row trigger.

CREATE FUNCTION pgsched.not_one_of(field text, value text, allowed text[]) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN value = ANY (allowed) THEN NULL
           WHEN value IS NULL THEN format('%s: must not be null', field)
           ELSE format('%s: "%s" is not one of %s', field, left(value, 60), array_to_string(allowed, ', ')) END
$$;

CREATE FUNCTION pgsched.out_of_range(field text, value numeric, low numeric, high numeric) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN value BETWEEN low AND high THEN NULL
           WHEN value IS NULL THEN format('%s: must not be null', field)
           ELSE format('%s: %s is out of range %s-%s', field, value, low, high) END
$$;

CREATE FUNCTION pgsched.bad_interval(field text, value interval, at_least interval) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN value IS NULL THEN NULL
        WHEN value < at_least THEN format('%s: %s is less than %s', field, value, at_least)
        WHEN value > interval '10 years' THEN format('%s: %s is more than 10 years', field, value)
    END
$$;

-- An interval that every job has.
CREATE FUNCTION pgsched.bad_period(field text, value interval) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN value IS NULL THEN format('%s: must not be null', field)
           ELSE pgsched.bad_interval(field, value, '0') END
$$;

CREATE FUNCTION pgsched.bad_codes(field text, codes integer[]) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN array_ndims(codes) > 1 THEN format('%s: must be a plain list', field)
        WHEN codes = '{}' THEN format('%s: must name at least one exit code', field)
        WHEN array_position(codes, NULL) IS NOT NULL THEN format('%s: must not hold null', field)
        WHEN NOT codes <@ ARRAY(SELECT generate_series(0, 255)) THEN
            format('%s: %s is out of range 0-255', field,
                   (SELECT code FROM unnest(codes) AS c(code) WHERE code NOT BETWEEN 0 AND 255 LIMIT 1))
    END
$$;

-- An SQL job runs with its owner's rights: nobody makes one that runs with somebody else's.
CREATE FUNCTION pgsched.bad_owner(owner name) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN owner IS NULL THEN 'owner: must not be null'
        WHEN NOT EXISTS (SELECT FROM pg_roles WHERE rolname = owner) THEN format('owner: there is no role "%s"', owner)
        WHEN NOT pg_has_role(owner, 'MEMBER') THEN
            format('owner: role "%s" may not act for role "%s"', current_user, owner)
    END
$$;

CREATE FUNCTION pgsched.bad_text(field text, value text, longest integer) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN value = '' OR value IS NULL THEN format('%s: must not be empty', field)
        WHEN length(value) > longest THEN
            format('%s: %s characters, at most %s are allowed', field, length(value), longest)
        WHEN value ~ '[\x01-\x1f\x7f]' THEN format('%s: must not contain control characters', field)
        WHEN value <> btrim(value) THEN format('%s: must not begin or end with a space', field)
    END
$$;

CREATE FUNCTION pgsched.bad_instant(field text, value timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN NOT isfinite(value) OR value NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'
           THEN format('%s: %s is not an instant between 1970 and 9000', field, value) END
$$;

CREATE FUNCTION pgsched.args_error(kind text, args jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN args IS NULL THEN 'args: must not be null'
        WHEN jsonb_typeof(args) NOT IN ('object', 'array') THEN
            format('args: must be a JSON object or array, not a %s', jsonb_typeof(args))
        WHEN kind IN ('shell', 'http') AND jsonb_typeof(args) = 'array' AND args <> '[]' THEN
            format('args: a %s job takes a JSON object', kind)
        WHEN pg_column_size(args) > 1048576 THEN
            format('args: %s bytes, at most 1048576 are allowed', pg_column_size(args))
    END
$$;

CREATE FUNCTION pgsched.job_error(j pgsched.jobs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(
        pgsched.bad_text('name', j.name, 200),
        pgsched.not_one_of('kind', j.kind, ARRAY['python', 'command', 'shell', 'sql', 'http']),
        CASE WHEN j.task IS NULL OR btrim(j.task) = '' THEN 'task: must not be empty'
             WHEN length(j.task) > 65536 THEN
                 format('task: %s characters, at most 65536 are allowed', length(j.task)) END,
        CASE WHEN j.kind = 'python' THEN pgsched.bad_text('task', j.task, 200) END,
        pgsched.args_error(j.kind, j.args),
        pgsched.bad_text('queue', j.queue, 100),
        pgsched.out_of_range('priority', j.priority, 0, 9),
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
        pgsched.out_of_range('max_attempts', j.max_attempts, 1, 1000),
        pgsched.bad_interval('timeout', j.timeout, '1 millisecond'),
        pgsched.bad_period('kill_after', j.kill_after),
        pgsched.not_one_of('backoff', j.backoff, ARRAY['exponential', 'fixed', 'linear']),
        pgsched.bad_period('backoff_base', j.backoff_base),
        pgsched.bad_period('backoff_max', j.backoff_max),
        pgsched.out_of_range('backoff_jitter', j.backoff_jitter::numeric, 0, 1),
        CASE WHEN j.success_codes IS NULL THEN 'success_codes: must not be null' END,
        pgsched.bad_codes('success_codes', j.success_codes),
        pgsched.bad_codes('retry_codes', j.retry_codes),
        pgsched.bad_codes('dead_codes', j.dead_codes),
        CASE WHEN j.delete_after_run IS NULL THEN 'delete_after_run: must not be null' END,
        CASE WHEN j.delete_after_run AND j.schedule IS NOT NULL THEN
            'delete_after_run: is for jobs that run once; this one has a schedule' END,
        CASE WHEN j.paused IS NULL THEN 'paused: must not be null' END,
        pgsched.not_one_of('resume_from', j.resume_from, ARRAY['now', 'pause']),
        -- columns that later releases give a meaning to: refused rather than silently ignored
        CASE WHEN j.concurrency_key IS NOT NULL OR j.concurrency_limit IS NOT NULL THEN
            'concurrency_limit: is not supported by this release' END,
        CASE WHEN j.after_jobs IS NOT NULL THEN 'after_jobs: is not supported by this release' END,
        CASE WHEN j.kind = 'http' THEN 'kind: "http" is not supported by this release' END
    )
$$;

CREATE FUNCTION pgsched.raise_bad_value(problem text, relation text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = problem,
        COLUMN = split_part(problem, ':', 1), TABLE = relation, SCHEMA = 'pgsched';
END $$;

CREATE FUNCTION pgsched.jobs_before_insert() RETURNS trigger
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
    IF NEW.schedule IS NULL THEN
        NEW.run_at := coalesce(NEW.run_at, moment);
        NEW.decided_until := '-infinity';
        NEW.next_run_at := NEW.run_at;
    ELSE
        -- due at once: the leader plans it, and only slots after this instant exist
        NEW.decided_until := greatest(moment, NEW.starts_at - interval '1 microsecond');
        NEW.next_run_at := moment;
    END IF;
    IF NEW.paused THEN
        NEW.paused_at := moment;
        NEW.paused_by := coalesce(NEW.paused_by, session_user);
    ELSE
        NEW.resume_from := 'now';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION pgsched.jobs_before_update() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    problem text;
    retimed boolean := (NEW.schedule, NEW.timezone, NEW.run_at, NEW.starts_at)
                       IS DISTINCT FROM (OLD.schedule, OLD.timezone, OLD.run_at, OLD.starts_at);
    resumed boolean := OLD.paused AND NOT NEW.paused;
    from_now boolean := NEW.resume_from = 'now';
BEGIN
    IF NEW.schedule IS NOT NULL AND OLD.schedule IS NULL AND NEW.run_at IS NOT DISTINCT FROM OLD.run_at THEN
        NEW.run_at := NULL;  -- a job that was to run once gets a schedule; the insert may have filled run_at in
    END IF;
    problem := pgsched.job_error(NEW);
    IF NEW.owner IS DISTINCT FROM OLD.owner THEN
        problem := coalesce(problem, pgsched.bad_owner(NEW.owner));
    ELSIF (NEW.kind, NEW.task, NEW.args) IS DISTINCT FROM (OLD.kind, OLD.task, OLD.args)
          AND pgsched.bad_owner(OLD.owner) IS NOT NULL THEN
        NEW.owner := current_user;  -- who says what runs, and may not act for the owner, becomes it
    END IF;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'jobs');
    END IF;
    NEW.id := OLD.id;
    NEW.created_at := OLD.created_at;
    NEW.updated_at := moment;
    IF NEW.paused AND NOT OLD.paused THEN
        NEW.paused_at := moment;
        NEW.paused_by := coalesce(NEW.paused_by, session_user);
    ELSIF NOT NEW.paused THEN
        NEW.paused_at := NULL;
        NEW.paused_by := NULL;
        NEW.paused_reason := NULL;
        NEW.resume_from := 'now';
    END IF;
    IF retimed OR resumed AND from_now THEN
        PERFORM pgsched.pass_over(OLD, moment, retimed);
    END IF;
    IF retimed THEN
        NEW.error := NULL;
        NEW.error_at := NULL;
    END IF;
    IF NEW.schedule IS NULL THEN
        IF retimed THEN
            NEW.run_at := coalesce(NEW.run_at, moment);
            IF NEW.run_at <= OLD.decided_until THEN
                PERFORM pgsched.raise_bad_value(format(
                    'run_at: %s is not later than %s, which is already decided', NEW.run_at, OLD.decided_until),
                    'jobs');
            END IF;
            NEW.next_run_at := NEW.run_at;
        END IF;
    ELSIF resumed AND NOT retimed AND NOT from_now THEN
        NEW.next_run_at := coalesce(OLD.next_run_at, moment);  -- the mark stays: catch_up decides what came since
    ELSIF retimed OR resumed THEN
        IF retimed THEN
            NEW.anchor_at := coalesce(NEW.starts_at, moment);
        END IF;
        NEW.decided_until := greatest(OLD.decided_until, moment, NEW.starts_at - interval '1 microsecond');
        NEW.next_run_at := moment;
    ELSIF (NEW.ends_at, NEW.max_runs) IS DISTINCT FROM (OLD.ends_at, OLD.max_runs) THEN
        IF OLD.next_run_at IS NULL AND OLD.error IS NULL THEN
            -- it had ended: what would have come between its end and this edit never was a slot
            NEW.decided_until := greatest(OLD.decided_until, moment);
        END IF;
        NEW.next_run_at := moment;  -- the leader plans it again
    END IF;
    RETURN NEW;
END $$;

-- The high-water mark only rises, whoever writes it: a restored old row or a clock that stepped back must not
-- make a slot fire twice.
CREATE FUNCTION pgsched.jobs_high_water_mark() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.decided_until := OLD.decided_until;
    RETURN NEW;
END $$;

CREATE FUNCTION pgsched.jobs_notify() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('pgsched_leader', 'jobs');
    RETURN NULL;
END $$;

CREATE FUNCTION pgsched.jobs_after_delete() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pgsched.runs
    SET state = 'cancelled', finished_at = clock_timestamp(), reason = format('job %s was deleted', OLD.name)
    WHERE job_id = OLD.id AND phase < 3 AND state <> 'running';
    RETURN NULL;
END $$;

CREATE TRIGGER a_check_insert BEFORE INSERT ON pgsched.jobs
    FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_before_insert();
CREATE TRIGGER a_check_update BEFORE UPDATE OF id, name, kind, task, args, queue, priority, tags, schedule,
        timezone, run_at, starts_at, ends_at, max_runs, jitter, delete_after_run, overlap, max_buffer,
        retry_within, misfire_after, catch_up, max_catch_up, catch_up_window, start_deadline, max_attempts,
        timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter, success_codes, retry_codes,
        dead_codes, concurrency_key, concurrency_limit, after_jobs, paused, resume_from, declared_by,
        description, owner
    ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_before_update();
CREATE TRIGGER b_high_water_mark BEFORE UPDATE OF decided_until ON pgsched.jobs
    FOR EACH ROW WHEN (NEW.decided_until < OLD.decided_until) EXECUTE FUNCTION pgsched.jobs_high_water_mark();
CREATE TRIGGER c_notify_insert AFTER INSERT ON pgsched.jobs
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.jobs_notify();
CREATE TRIGGER c_notify_update AFTER UPDATE OF schedule, timezone, run_at, starts_at, ends_at, max_runs, paused,
        jitter, overlap ON pgsched.jobs
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.jobs_notify();
CREATE TRIGGER d_after_delete AFTER DELETE ON pgsched.jobs
    FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_after_delete();
