-- A new run costs as little as can be: it is judged by one condition, and nobody is notified who is awake. A commit that
-- notifies takes turns with every other one that does, on one lock of the whole server, each with its fsync.

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

-- May a worker be asleep, so that a new run has to be told of? To be inlined, too.
CREATE FUNCTION pgsched.may_be_asleep() RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT (pg_catalog.pg_sequence_last_value('pgsched.asleep_until'::regclass)::float8
        >= pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000::float8) IS TRUE
$$;

-- Notify the sleeping workers of a queue, once for all transactions that overlap: one is told of, and whoever is woken
-- looks again 3 and 15 ms later (pgsched/worker/claiming/polling.py). A transaction that goes on for long must not silence the
-- others: every 20 ms one of them notifies all the same. With its owner's rights: nobody else needs any on the sequence.
CREATE FUNCTION pgsched.tell_workers(queue text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended(tell_workers.queue, 7236838)) THEN
        now_ms := (date_part('epoch', clock_timestamp()) * 1000)::bigint;
        -- a value of a clock that ran ahead is not believed
        IF coalesce(pg_sequence_last_value('pgsched.told_at'), 0) BETWEEN now_ms - 20 AND now_ms THEN
            RETURN NULL;
        END IF;
        PERFORM setval('pgsched.told_at', now_ms);
    END IF;
    PERFORM pg_notify('pgsched_runs', tell_workers.queue);
    RETURN NULL;
END $$;

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
CREATE FUNCTION pgsched.runs_before_insert() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    problem text;
    told text;
BEGIN
    IF NEW.concurrency_key IS NOT NULL AND pg_catalog.strpos(NEW.concurrency_key, '{') > 0 THEN
        NEW.concurrency_key := pgsched.run_key(NULL, NEW.concurrency_key, NULL, NEW.args);
    END IF;
    IF (NEW.kind IN ('task', 'command', 'shell', 'sql') AND (NEW.job_id IS NULL) = (NEW.scheduled_at IS NULL) AND pg_catalog.btrim(NEW.task) <> ''
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
            NEW.unique_key, NEW.tags, NEW.options, NEW.progress, NEW.cancel_reason),
            pgsched.held_options_error(NEW.options));
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
        -- Nobody hears that a slot, or a run of a backfill, is refused: the leader makes them, many at a time, and one that
        -- is refused would take all others with it. So a full queue takes them in addition, unless it sheds its oldest.
        IF NEW.origin IN ('schedule', 'backfill') AND NOT pgsched.sheds_oldest(NEW.queue) THEN
            NEW.state := pgsched.back_in_line(NEW.state, NEW.queue, NEW.concurrency_key);
        ELSE
            NEW.state := pgsched.entry_state(NEW.queue, NEW.concurrency_key);
        END IF;
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
