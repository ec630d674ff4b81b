-- Making a run and moving it costs as little as can be: one trigger looks at a new row, none at a row that is claimed or
-- settled, and nobody is notified who is awake.
--
-- A trigger's WHEN, a CHECK and a transition table are paid for by every statement or row, wrong or not. So a wrong
-- row is refused where it is made or edited, and the CHECKs that remain are those that a move could break.

-- Milliseconds since 1970 until which some worker may be asleep, and wants to be notified. A sequence, because that
-- is seen at once by transactions of any age, and read without a query. A commit that notifies waits for every
-- other commit that does: while all workers are busy, nobody asks for it.
CREATE SEQUENCE pgsched.asleep_until MINVALUE 0 MAXVALUE 9000000000000 START 0;
GRANT SELECT ON SEQUENCE pgsched.asleep_until TO PUBLIC;

-- Notify workers for the next `seconds`. Returns for how many seconds that is sure; at least three fifths of what was
-- asked for. With its owner's rights: a worker needs none on the sequence. A value of a clock that ran far ahead is not
-- believed.
CREATE FUNCTION pgsched.workers_asleep(seconds double precision) RETURNS double precision
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms bigint := (date_part('epoch', clock_timestamp()) * 1000)::bigint;
    asked_ms bigint := (least(greatest(seconds, 0), 86400) * 1000)::bigint;
    until_ms bigint := coalesce(pg_sequence_last_value('pgsched.asleep_until'), 0);
BEGIN
    IF until_ms < now_ms + asked_ms * 3 / 5 OR until_ms > now_ms + 2 * 86400000 THEN
        until_ms := setval('pgsched.asleep_until', now_ms + asked_ms);
    END IF;
    RETURN (until_ms - now_ms) / 1000.0;
END $$;

DROP TRIGGER a_refuse_insert ON pgsched.runs;
DROP TRIGGER a_refuse_update ON pgsched.runs;
DROP TRIGGER a_refuse_owner ON pgsched.runs;
DROP TRIGGER b_born_later ON pgsched.runs;
DROP TRIGGER c_notify ON pgsched.runs;
DROP FUNCTION pgsched.runs_refuse();
DROP FUNCTION pgsched.runs_owner();
DROP FUNCTION pgsched.runs_born_later();
DROP FUNCTION pgsched.runs_notify();

ALTER TABLE pgsched.runs
    DROP CONSTRAINT runs_kind, DROP CONSTRAINT runs_origin, DROP CONSTRAINT runs_priority,
    DROP CONSTRAINT runs_max_attempts, DROP CONSTRAINT runs_task_length, DROP CONSTRAINT runs_queue_length,
    DROP CONSTRAINT runs_args_size, DROP CONSTRAINT runs_backoff;

CREATE OR REPLACE FUNCTION pgsched.run_error(r pgsched.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(
        pgsched.not_one_of('kind', r.kind, ARRAY['python', 'command', 'shell', 'sql', 'http']),
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
            pgsched.out_of_range('backoff_jitter', r.backoff_jitter::numeric, 0, 1) END)
$$;

-- SQL runs with its owner's rights, in a run as in a job. A run of a job may carry the job's owner and statements: the
-- leader copies them, whoever it logs in as.
CREATE FUNCTION pgsched.run_owner_error(r pgsched.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN NOT EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = r.job_id AND j.kind = 'sql'
                                 AND j.owner = r.owner AND j.task = r.task)
           THEN pgsched.bad_owner(r.owner) END
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

-- The condition is cheap and catches every row that is wrong; run_error, which is not, says what is wrong with it (and
-- passes kind http, whose URL and arguments it alone can judge). No search_path is set, which would cost as much as all
-- the rest. Instead every function is named with its schema, and every operator has operands of the very types that
-- pg_catalog has it for: nothing in another schema fits better.
CREATE FUNCTION pgsched.runs_before_insert() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    problem text;
    told text;
BEGIN
    IF (NEW.kind IN ('python', 'command', 'shell', 'sql') AND pg_catalog.btrim(NEW.task) <> ''
        AND pg_catalog.length(NEW.task) <= 65536
        AND (pg_catalog.jsonb_typeof(NEW.args) = 'object'
             OR pg_catalog.jsonb_typeof(NEW.args) = 'array' AND NEW.kind <> 'shell')
        AND pg_catalog.pg_column_size(NEW.args) <= 1048576
        AND (NEW.queue = 'default' OR NEW.queue <> '' AND pg_catalog.length(NEW.queue) <= 100
             AND NEW.queue = pg_catalog.btrim(NEW.queue)
             AND NEW.queue !~ '[\x01-\x1f\x7f]')
        AND NEW.priority BETWEEN 0 AND 9 AND NEW.max_attempts BETWEEN 1 AND 1000
        AND NEW.origin IN ('enqueue', 'schedule', 'manual', 'backfill')
        AND NEW.available_at BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'
        AND (NEW.scheduled_at IS NULL OR NEW.scheduled_at BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z')
        AND (NEW.expires_at IS NULL OR NEW.expires_at BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z')
        AND (NEW.timeout IS NULL OR NEW.timeout BETWEEN '1 millisecond' AND '10 years')
        AND (NEW.kill_after IS NULL OR NEW.kill_after BETWEEN '0' AND '10 years')
        AND (NEW.backoff IS NULL OR NEW.backoff IN ('exponential', 'fixed', 'linear'))
        AND (NEW.backoff_base IS NULL OR NEW.backoff_base BETWEEN '0' AND '10 years')
        AND (NEW.backoff_max IS NULL OR NEW.backoff_max BETWEEN '0' AND '10 years')
        AND (NEW.backoff_jitter IS NULL OR NEW.backoff_jitter BETWEEN 0::float8 AND 1::float8)) IS NOT TRUE
    THEN
        problem := pgsched.run_error(NEW);
        IF problem IS NOT NULL THEN
            PERFORM pgsched.raise_bad_value(problem, 'runs');
        END IF;
    END IF;
    IF NEW.state = 'queued' AND NEW.available_at > pg_catalog.clock_timestamp() THEN
        NEW.state := 'scheduled';
    END IF;
    IF NEW.state = 'queued' THEN
        IF pg_catalog.pg_sequence_last_value('pgsched.asleep_until'::regclass)::float8
           >= pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000::float8 THEN
            told := pg_catalog.pg_notify('pgsched_runs', NEW.queue);
        END IF;
    ELSIF NEW.state IN ('scheduled', 'waiting') THEN
        told := pg_catalog.pg_notify('pgsched_leader', 'runs');
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

CREATE TRIGGER a_refuse_owner BEFORE INSERT ON pgsched.runs
    FOR EACH ROW WHEN (NEW.kind = 'sql') EXECUTE FUNCTION pgsched.runs_owner();
CREATE TRIGGER a_check_insert BEFORE INSERT ON pgsched.runs
    FOR EACH ROW EXECUTE FUNCTION pgsched.runs_before_insert();
-- Not for what the hot statements write (available_at, expires_at: a CHECK bounds those).
CREATE TRIGGER a_check_update AFTER UPDATE OF kind, task, args, queue, priority, max_attempts, scheduled_at, origin,
        owner, timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter
    ON pgsched.runs FOR EACH ROW EXECUTE FUNCTION pgsched.runs_after_update();

-- The state that a settled attempt leaves its run in; a claim that was released was never started.
CREATE OR REPLACE FUNCTION pgsched.settled_state(outcome text, retry boolean, attempts_left boolean, cancel boolean)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN outcome = 'succeeded' THEN 'succeeded'
        WHEN outcome = 'cancelled' OR cancel THEN 'cancelled'
        WHEN outcome IN ('interrupted', 'released') THEN 'queued'
        WHEN retry AND attempts_left THEN 'scheduled'
        ELSE 'dead' END
$$;
