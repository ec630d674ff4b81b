-- What limits a run, and what that costs a run without limits: one test of a column and one of a number in a sequence.
--
-- A run that has a concurrency_key, or whose queue is limited, is born `waiting` with ready_at: only limits hold it, and
-- the leader lets it go (pgsched/leader/admission.py). It goes back to `waiting`, and never to `queued`, whenever it
-- becomes claimable again; ready_at stays, so that it keeps its place. Whoever lets a run go that something else held
-- (an overlap policy, another run, a later time) asks pgsched.is_limited first.

-- Since when a run is held by limits alone, runs.ready_at says; null where none ever held it (before/10_columns.sql).

-- What something else holds is apart from them: there may be a million runs that wait for limits.
DROP INDEX pgsched.runs_waiting;
DROP INDEX pgsched.runs_waiting_of_job;
ALTER INDEX pgsched.runs_waiting_next RENAME TO runs_waiting;
ALTER INDEX pgsched.runs_waiting_of_job_next RENAME TO runs_waiting_of_job;

-- What must not start. Claims look here (claim in sql/claims.sql), so that a pause holds from its commit on, costs one look at a
-- table that is nearly always empty, and moves no run. A row whose resume_at has passed pauses nothing. `limit` is a queue
-- that has got its first limit: nothing of it is claimed until the leader has taken back what is queued beyond that.
CREATE TABLE pgsched.pauses (
    what      text NOT NULL CHECK (what IN ('all', 'queue', 'task', 'limit')),
    name      text NOT NULL DEFAULT '' CHECK (length(name) <= 200),
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    paused_by text NOT NULL DEFAULT session_user,
    reason    text CHECK (length(reason) <= 10000),
    resume_at timestamptz CHECK (resume_at BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'),
    PRIMARY KEY (what, name),
    CONSTRAINT pauses_all_has_no_name CHECK ((what = 'all') = (name = ''))
);

-- The end of a pause wakes the workers; an empty name, all of them.
CREATE FUNCTION pgsched.pauses_notify() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('pgsched_runs', CASE WHEN OLD.what IN ('queue', 'limit') THEN OLD.name ELSE '' END);
    PERFORM pg_notify('pgsched_leader', 'limits');
    RETURN NULL;
END $$;
CREATE TRIGGER a_notify AFTER UPDATE OR DELETE ON pgsched.pauses
    FOR EACH ROW EXECUTE FUNCTION pgsched.pauses_notify();

-- Every queue that anything is set for has its bit here (pgsched.queue_bit). A sequence, because that is seen at once by
-- transactions of any age, and read without a query. A bit too many costs a look-up for each run of a queue; one too few
-- would let runs pass a limit: bits are taken out only while nobody changes the table (pgsched.forget_gates).
CREATE SEQUENCE pgsched.gated_queues MINVALUE 0 START 0;
GRANT SELECT ON SEQUENCE pgsched.gated_queues TO PUBLIC;

-- As in runs_before_insert, which cannot afford the call.
CREATE FUNCTION pgsched.queue_bit(queue text) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT 1::bigint << mod(hashtext(queue) & 2147483647, 61)
$$;

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
            pgsched.out_of_range('backoff_jitter', r.backoff_jitter::numeric, 0, 1) END,
        CASE WHEN r.concurrency_key IS NOT NULL THEN pgsched.bad_text('concurrency_key', r.concurrency_key, 500) END)
$$;

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
        AND (NEW.backoff_jitter IS NULL OR NEW.backoff_jitter BETWEEN 0::float8 AND 1::float8)
        AND (NEW.concurrency_key IS NULL OR pg_catalog.length(NEW.concurrency_key) BETWEEN 1 AND 500)) IS NOT TRUE
    THEN
        problem := pgsched.run_error(NEW);
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
           >= pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000::float8 THEN
            told := pgsched.tell_workers(NEW.queue);
        END IF;
    ELSIF NEW.state IN ('scheduled', 'waiting') THEN
        told := pg_catalog.pg_notify('pgsched_leader', 'runs');
    END IF;
    RETURN NEW;
END $$;
