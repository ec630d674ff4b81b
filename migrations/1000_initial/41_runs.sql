-- What holds for every row of runs. One trigger looks at a new row (42_new_runs.sql), none at a row that is claimed or
-- settled: a trigger's WHEN, a CHECK and a transition table are paid for by every statement or row, wrong or not. So a
-- wrong row is refused where it is made or edited, and the CHECKs of the table are those that a move could break.

-- The phase that a state belongs to. No search_path is set, because it is to be inlined; see pgsched.runs_before_insert.
CREATE FUNCTION pgsched.phase_of(state text) RETURNS smallint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE state WHEN 'waiting' THEN 0 WHEN 'scheduled' THEN 1 WHEN 'queued' THEN 2 WHEN 'running' THEN 2
        WHEN 'dead' THEN 4 WHEN 'missed' THEN 4 ELSE 3 END::smallint
$$;

CREATE FUNCTION pgsched.runs_born_in_phase() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.phase := pgsched.phase_of(NEW.state);
    RETURN NEW;
END $$;

-- After and not before an UPDATE: a trigger before it would have every row looked up and locked once more.
CREATE FUNCTION pgsched.runs_mend_phase() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pgsched.runs SET phase = pgsched.phase_of(NEW.state) WHERE id = NEW.id;
    RETURN NULL;
END $$;

CREATE FUNCTION pgsched.run_error(r pgsched.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(
        pgsched.not_one_of('kind', r.kind, ARRAY['task', 'command', 'shell', 'sql', 'http']),
        CASE WHEN btrim(r.task) = '' THEN 'task: must not be empty'
             WHEN length(r.task) > 65536 THEN
                 format('task: %s characters, at most 65536 are allowed', length(r.task)) END,
        CASE WHEN r.kind = 'http' THEN pgsched.http_url_error(r.task) END,
        pgsched.args_error(r.kind, r.args),
        pgsched.bad_text('queue', r.queue, 100),
        pgsched.not_one_of('origin', r.origin, ARRAY['schedule', 'manual', 'backfill', 'enqueue']),
        pgsched.out_of_range('priority', r.priority, 0, 9),
        pgsched.out_of_range('max_attempts', r.max_attempts, 1, 1000),
        pgsched.bad_instant('available_at', r.available_at),
        pgsched.bad_instant('scheduled_at', r.scheduled_at),
        pgsched.bad_instant('expires_at', r.expires_at),
        pgsched.bad_interval('timeout', r.timeout, '1 millisecond'),
        pgsched.bad_interval('kill_after', r.kill_after, '0'),
        CASE WHEN r.backoff IS NOT NULL THEN
            pgsched.not_one_of('backoff', r.backoff, ARRAY['exponential', 'fixed', 'linear']) END,
        pgsched.bad_interval('backoff_base', r.backoff_base, '0'),
        pgsched.bad_interval('backoff_max', r.backoff_max, '0'),
        CASE WHEN r.backoff_jitter IS NOT NULL THEN
            pgsched.out_of_range('backoff_jitter', r.backoff_jitter::numeric, 0, 1) END,
        CASE WHEN r.concurrency_key IS NOT NULL THEN pgsched.bad_text('concurrency_key', r.concurrency_key, 500) END)
$$;

CREATE FUNCTION pgsched.run_slot_error(r pgsched.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN (r.job_id IS NULL) <> (r.scheduled_at IS NULL)
        THEN 'scheduled_at: a run of a job has one, and no other run' END
$$;

-- How much a row may hold of what few runs have. Asked when it is written: by a trigger at UPDATE, and in
-- runs_before_insert.
CREATE FUNCTION pgsched.run_size_error(unique_key text, tags text[], options jsonb, progress jsonb, cancel_reason text)
RETURNS text LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s: %s bytes, at most %s are allowed', name, size, most) FROM (VALUES
        ('unique_key', octet_length(unique_key), 4000), ('tags', pg_column_size(tags), 65536),
        ('options', pg_column_size(options), 65536), ('progress', pg_column_size(progress), 65536),
        ('cancel_reason', octet_length(cancel_reason), 65536)) AS v(name, size, most)
    WHERE size > most LIMIT 1
$$;

-- What a run keeps in its options while it waits for others is read by the leader for all that wait at once: one that
-- cannot be read would hold up all others.
CREATE FUNCTION pgsched.held_options_error(options jsonb) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (options ?| '{not_before,after_jobs}') IS NOT TRUE THEN
        RETURN NULL;
    ELSIF jsonb_typeof(options -> 'after_jobs') <> 'array' THEN
        RETURN 'options: after_jobs is no array of the numbers of jobs';
    END IF;
    BEGIN
        PERFORM a.job_id::bigint FROM jsonb_array_elements_text(options -> 'after_jobs') AS a (job_id);
        RETURN pgsched.bad_instant('options: not_before', (options ->> 'not_before')::timestamptz);
    EXCEPTION WHEN data_exception THEN
        RETURN format('options: not_before or after_jobs: %s', SQLERRM);
    END;
END $$;

-- SQL runs with its owner's rights, in a run as in a job. A run of a job may carry the job's owner and statements: the
-- leader copies them, whoever it logs in as.
CREATE FUNCTION pgsched.run_owner_error(r pgsched.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN NOT EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = r.job_id AND j.kind = 'sql'
                                 AND j.owner = r.owner AND j.task = r.task)
           THEN pgsched.bad_owner(r.owner) END
$$;

-- Settings that only some kinds need travel in one nullable column, so that ordinary runs stay small.
CREATE FUNCTION pgsched.job_options(j pgsched.jobs) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN j.kind IN ('command', 'shell') AND
                     (j.success_codes <> '{0}' OR j.retry_codes IS NOT NULL OR j.dead_codes IS NOT NULL)
        THEN jsonb_build_object('success_codes', j.success_codes, 'retry_codes', j.retry_codes,
                                'dead_codes', j.dead_codes) END
$$;

CREATE FUNCTION pgsched.runs_owner() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text;
BEGIN
    NEW.owner := coalesce(NEW.owner, current_user);
    problem := pgsched.run_owner_error(NEW);
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    RETURN NEW;
END $$;

-- AFTER and not BEFORE: a BEFORE trigger makes every update of any column lock its row twice.
CREATE FUNCTION pgsched.runs_after_update() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := pgsched.run_error(NEW);
BEGIN
    IF NEW.kind = 'sql' AND (NEW.kind, NEW.task, NEW.args, NEW.owner)
        IS DISTINCT FROM (OLD.kind, OLD.task, OLD.args, OLD.owner) THEN
        problem := coalesce(problem, pgsched.bad_owner(NEW.owner));
    END IF;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION pgsched.runs_refuse_instants() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.raise_bad_value(coalesce(
        pgsched.run_slot_error(NEW), pgsched.bad_instant('available_at', NEW.available_at),
        pgsched.bad_instant('scheduled_at', NEW.scheduled_at), pgsched.bad_instant('expires_at', NEW.expires_at)), 'runs');
    RETURN NULL;
END $$;

CREATE FUNCTION pgsched.runs_refuse_size() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := pgsched.run_size_error(NEW.unique_key, NEW.tags, NEW.options, NEW.progress, NEW.cancel_reason);
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    RETURN NULL;
END $$;
