-- Runs made by any client wake the workers once per statement; a run for later is born scheduled.

CREATE FUNCTION pgsched.runs_born_later() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.state := 'scheduled';
    RETURN NEW;
END $$;

CREATE FUNCTION pgsched.run_error(r pgsched.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(
        pgsched.not_one_of('kind', r.kind, ARRAY['python', 'command', 'shell', 'sql']),
        CASE WHEN btrim(r.task) = '' THEN 'task: must not be empty'
             WHEN length(r.task) > 65536 THEN
                 format('task: %s characters, at most 65536 are allowed', length(r.task)) END,
        pgsched.args_error(r.kind, r.args),
        pgsched.bad_text('queue', r.queue, 100),
        pgsched.out_of_range('priority', r.priority, 0, 9),
        pgsched.out_of_range('max_attempts', r.max_attempts, 1, 1000),
        pgsched.bad_instant('available_at', r.available_at),
        pgsched.bad_instant('scheduled_at', r.scheduled_at),
        pgsched.bad_instant('expires_at', r.expires_at),
        pgsched.bad_interval('timeout', r.timeout, '1 millisecond'),
        pgsched.bad_interval('kill_after', r.kill_after, '0'),
        pgsched.bad_interval('backoff_base', r.backoff_base, '0'),
        pgsched.bad_interval('backoff_max', r.backoff_max, '0'),
        CASE WHEN r.backoff_jitter IS NOT NULL THEN
            pgsched.out_of_range('backoff_jitter', r.backoff_jitter::numeric, 0, 1) END)
$$;

-- Fires only for a row that is wrong (the trigger's condition is cheap, this is not), and says what is wrong with it.
CREATE FUNCTION pgsched.runs_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := pgsched.run_error(NEW);
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    RETURN NEW;
END $$;

-- SQL runs with its owner's rights, in a run as in a job. A run of a job may carry the job's owner and statements: the
-- leader copies them, whoever it logs in as.
CREATE FUNCTION pgsched.runs_owner() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text;
BEGIN
    NEW.owner := coalesce(NEW.owner, current_user);
    IF NOT EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = NEW.job_id AND j.kind = 'sql'
                   AND j.owner = NEW.owner AND j.task = NEW.task) THEN
        problem := pgsched.bad_owner(NEW.owner);
        IF problem IS NOT NULL THEN
            PERFORM pgsched.raise_bad_value(problem, 'runs');
        END IF;
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION pgsched.runs_notify() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('pgsched_runs', queue) FROM (SELECT DISTINCT queue FROM born WHERE state = 'queued') q;
    PERFORM pg_notify('pgsched_leader', 'runs') WHERE EXISTS (SELECT FROM born WHERE phase < 2);
    RETURN NULL;
END $$;

-- Not for what the hot statements write (available_at, expires_at: CHECKs bound those).
CREATE TRIGGER a_refuse_insert BEFORE INSERT ON pgsched.runs FOR EACH ROW
    WHEN ((pg_column_size(NEW.args) <= 1048576
        AND (jsonb_typeof(NEW.args) = 'object' OR jsonb_typeof(NEW.args) = 'array' AND NEW.kind <> 'shell')
        AND NEW.kind IN ('python', 'command', 'shell', 'sql') AND length(NEW.task) BETWEEN 1 AND 65536
        AND NEW.task <> '' AND length(NEW.queue) BETWEEN 1 AND 100 AND NEW.queue = btrim(NEW.queue)
        AND NEW.queue !~ '[\x01-\x1f\x7f]' AND NEW.priority BETWEEN 0 AND 9 AND NEW.max_attempts BETWEEN 1 AND 1000
        AND NEW.available_at BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'
        AND coalesce(NEW.scheduled_at BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z', true)
        AND coalesce(NEW.expires_at BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z', true)
        AND coalesce(NEW.timeout BETWEEN '1 millisecond' AND '10 years', true)
        AND coalesce(NEW.kill_after BETWEEN '0' AND '10 years', true)
        AND coalesce(NEW.backoff_base BETWEEN '0' AND '10 years', true)
        AND coalesce(NEW.backoff_max BETWEEN '0' AND '10 years', true)
        AND coalesce(NEW.backoff_jitter BETWEEN 0 AND 1, true)) IS NOT TRUE)
    EXECUTE FUNCTION pgsched.runs_refuse();
CREATE TRIGGER a_refuse_update BEFORE UPDATE OF kind, task, args, queue, priority, max_attempts, scheduled_at, timeout,
        kill_after, backoff_base, backoff_max, backoff_jitter
    ON pgsched.runs FOR EACH ROW EXECUTE FUNCTION pgsched.runs_refuse();
CREATE TRIGGER a_refuse_owner BEFORE INSERT OR UPDATE OF kind, task, owner ON pgsched.runs FOR EACH ROW
    WHEN (NEW.kind = 'sql') EXECUTE FUNCTION pgsched.runs_owner();
CREATE TRIGGER b_born_later BEFORE INSERT ON pgsched.runs FOR EACH ROW
    WHEN (NEW.state = 'queued' AND NEW.available_at > clock_timestamp())
    EXECUTE FUNCTION pgsched.runs_born_later();
CREATE TRIGGER c_notify AFTER INSERT ON pgsched.runs REFERENCING NEW TABLE AS born
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.runs_notify();

-- The state that a settled attempt leaves its run in: the one rule for workers and reaper alike.
CREATE FUNCTION pgsched.settled_state(outcome text, retry boolean, attempts_left boolean, cancel boolean)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN outcome = 'succeeded' THEN 'succeeded'
        WHEN outcome = 'cancelled' OR cancel THEN 'cancelled'
        WHEN outcome = 'interrupted' THEN 'queued'
        WHEN retry AND attempts_left THEN 'scheduled'
        ELSE 'dead' END
$$;
