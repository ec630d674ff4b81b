-- What every statement about runs pays for is less. PostgreSQL reads the text of a table's CHECKs and of its triggers'
-- conditions again for each statement: 23 of the 160 microseconds that claiming one run took were its seven CHECKs.

-- True: the statement that made the row has judged it by pgsched.is_plain, and the trigger need not. Only one who may
-- write this column can say so; producers may not (sql/roles.sql).
ALTER TABLE pgsched.runs ADD COLUMN checked boolean;

-- The same in a third of the text: each other phase belongs to states that exist, because it was made of them.
ALTER TABLE pgsched.runs DROP CONSTRAINT runs_state;
ALTER TABLE pgsched.runs ADD CONSTRAINT runs_state
    CHECK (phase <> 3 OR state IN ('succeeded', 'cancelled', 'skipped')) NOT VALID;

-- No hot statement writes these columns: a trigger of their own sees to them, and the one at INSERT.
ALTER TABLE pgsched.runs DROP CONSTRAINT runs_instants;
ALTER TABLE pgsched.runs DROP CONSTRAINT runs_slot_has_job;

CREATE FUNCTION pgsched.run_slot_error(r pgsched.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN (r.job_id IS NULL) <> (r.scheduled_at IS NULL)
        THEN 'scheduled_at: a run of a job has one, and no other run' END
$$;

CREATE FUNCTION pgsched.runs_refuse_instants() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.raise_bad_value(coalesce(
        pgsched.run_slot_error(NEW), pgsched.bad_instant('available_at', NEW.available_at),
        pgsched.bad_instant('scheduled_at', NEW.scheduled_at), pgsched.bad_instant('expires_at', NEW.expires_at)), 'runs');
    RETURN NULL;
END $$;
CREATE TRIGGER a_check_instants AFTER UPDATE OF job_id, scheduled_at, available_at, expires_at ON pgsched.runs
    FOR EACH ROW WHEN ((NEW.job_id IS NULL) <> (NEW.scheduled_at IS NULL)
        OR NEW.available_at NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'
        OR NEW.scheduled_at NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'
        OR NEW.expires_at NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z')
    EXECUTE FUNCTION pgsched.runs_refuse_instants();

-- Nothing is to be refused or changed in a run of a Python task that takes its defaults otherwise: what the trigger would
-- find, as an expression that becomes part of the caller's prepared statement. Null: let the trigger judge. Whoever asks
-- must hold the lock of one who writes runs: a queue's first limit waits for those. No search_path is set, because it is
-- to be inlined; see pgsched.runs_before_insert.
CREATE FUNCTION pgsched.is_plain(task text, args jsonb, queue text, priority smallint, max_attempts integer,
    run_timeout interval) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN pg_catalog.btrim(task) <> '' AND pg_catalog.length(task) <= 65536
        AND pg_catalog.jsonb_typeof(args) = 'object' AND pg_catalog.pg_column_size(args) <= 1048576
        AND (queue = 'default' OR queue ~ '^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,99}$')
        AND priority BETWEEN 0 AND 9 AND max_attempts BETWEEN 1 AND 1000
        AND (run_timeout IS NULL OR run_timeout BETWEEN '1 millisecond' AND '10 years')
        AND (pg_catalog.pg_sequence_last_value('pgsched.gated_queues'::regclass)
            >> pg_catalog.mod(pg_catalog.hashtext(queue) & 2147483647, 61)) & 1::bigint IS DISTINCT FROM 1::bigint
        THEN true END
$$;

-- May a worker be asleep, so that a new run has to be told of? To be inlined, too.
CREATE FUNCTION pgsched.may_be_asleep() RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT (pg_catalog.pg_sequence_last_value('pgsched.asleep_until'::regclass)::float8
        >= pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000::float8) IS TRUE
$$;

-- is_plain, asked once for many runs that differ in their arguments alone (objects, each below the limit: the caller sees
-- to it). The lock is the one that making them takes.
CREATE FUNCTION pgsched.are_plain(task text, queue text, priority smallint, max_attempts integer, run_timeout interval)
RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    LOCK TABLE pgsched.runs IN ROW EXCLUSIVE MODE;
    RETURN pgsched.is_plain(task, '{}', queue, priority, max_attempts, run_timeout) IS TRUE;
END $$;

-- The condition is cheap and catches every row that is wrong; run_error, which is not, says what is wrong with it (and
-- passes kind http, whose URL and arguments it alone can judge). No search_path is set, which would cost as much as all
-- the rest. Instead every function is named with its schema, and every operator has operands of the very types that
-- pg_catalog has it for: nothing in another schema fits better.
CREATE OR REPLACE FUNCTION pgsched.runs_before_insert() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    problem text;
    told text;
BEGIN
    IF NEW.concurrency_key IS NOT NULL AND pg_catalog.strpos(NEW.concurrency_key, '{') > 0 THEN
        NEW.concurrency_key := pgsched.run_key(NULL, NEW.concurrency_key, NULL, NEW.args);
    END IF;
    IF (NEW.kind IN ('python', 'command', 'shell', 'sql') AND (NEW.job_id IS NULL) = (NEW.scheduled_at IS NULL) AND pg_catalog.btrim(NEW.task) <> ''
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
        AND (NEW.backoff_jitter IS NULL OR NEW.backoff_jitter BETWEEN 0::float8 AND 1::float8)
        AND (NEW.concurrency_key IS NULL OR pg_catalog.length(NEW.concurrency_key) BETWEEN 1 AND 500)
        AND pg_catalog.num_nonnulls(NEW.unique_key, NEW.tags, NEW.options, NEW.progress, NEW.cancel_reason) = 0) IS NOT TRUE
    THEN
        problem := coalesce(pgsched.run_slot_error(NEW), pgsched.run_error(NEW), pgsched.run_size_error(
            NEW.unique_key, NEW.tags, NEW.options, NEW.progress, NEW.cancel_reason));
        IF problem IS NOT NULL THEN
            PERFORM pgsched.raise_bad_value(problem, 'runs');
        END IF;
    END IF;
    IF NEW.state = 'queued' AND NEW.available_at > pg_catalog.clock_timestamp() THEN
        NEW.state := 'scheduled';
    END IF;
    IF NEW.state = 'queued' AND (NEW.concurrency_key IS NOT NULL
        OR (pg_catalog.pg_sequence_last_value('pgsched.gated_queues'::regclass)
            >> pg_catalog.mod(pg_catalog.hashtext(NEW.queue) & 2147483647, 61)) & 1::bigint = 1::bigint)
    THEN
        NEW.state := pgsched.entry_state(NEW.queue, NEW.concurrency_key);
        IF NEW.state = 'waiting' THEN
            NEW.ready_at := pg_catalog.clock_timestamp();
        END IF;
    END IF;
    IF NEW.state = 'queued' THEN
        IF pg_catalog.pg_sequence_last_value('pgsched.asleep_until'::regclass)::float8
           >= pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000::float8 THEN  -- pgsched.may_be_asleep
            told := pgsched.tell_workers(NEW.queue);
        END IF;
    ELSIF NEW.state IN ('scheduled', 'waiting') THEN
        told := pg_catalog.pg_notify('pgsched_leader', 'runs');
    END IF;
    RETURN NEW;
END $$;

DROP TRIGGER a_check_insert ON pgsched.runs;
CREATE TRIGGER a_check_insert BEFORE INSERT ON pgsched.runs
    FOR EACH ROW WHEN (NEW.checked IS NOT TRUE) EXECUTE FUNCTION pgsched.runs_before_insert();
