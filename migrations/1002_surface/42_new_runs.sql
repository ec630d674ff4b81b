-- What a task says of its runs beyond queue, priority, max_attempts, timeout, tags and key, where the run says nothing. A run
-- that waits for others expires from when it is made, or may start, because it is due when they have ended. A job's own
-- keep comes first, and so does a job's own limit.
CREATE FUNCTION pgsched.take_options(r pgsched.runs, more jsonb) RETURNS pgsched.runs
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    r.kill_after := coalesce(r.kill_after, make_interval(secs => (more ->> 'kill_after')::float8));
    r.backoff := coalesce(r.backoff, more ->> 'backoff');
    r.backoff_base := coalesce(r.backoff_base, make_interval(secs => (more ->> 'backoff_base')::float8));
    r.backoff_max := coalesce(r.backoff_max, make_interval(secs => (more ->> 'backoff_max')::float8));
    r.backoff_jitter := coalesce(r.backoff_jitter, (more ->> 'backoff_jitter')::float8);
    IF r.keep IS NULL AND more ->> 'keep' IS NOT NULL
        AND (r.job_id IS NULL OR EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = r.job_id AND j.keep IS NULL)) THEN
        r.keep := make_interval(secs => (more ->> 'keep')::float8);
    END IF;
    IF r.expires_at IS NULL AND r.finished_at IS NULL AND more ->> 'expires' IS NOT NULL THEN
        r.expires_at := least('9000-01-01 00:00Z', make_interval(secs => (more ->> 'expires')::float8)
            + CASE WHEN r.available_at < '8998-01-01 00:00Z' THEN r.available_at
                   ELSE coalesce(pgsched.not_before_of(r.options), clock_timestamp()) END);
    END IF;
    IF more ?| '{concurrency,rate}' THEN
        r.concurrency_key := pgsched.limited_key(r.task, more, r.concurrency_key);
    END IF;
    RETURN r;
END $$;

-- What nobody has said of a run is decided here, before anything is judged: by the options of its task, or else by the
-- product. The condition is cheap and catches every row that is wrong; run_error, which is not, says what is wrong with it (and
-- passes kind http, whose URL and arguments it alone can judge). No search_path is set, which would cost as much as all
-- the rest. Instead every function is named with its schema, and every operator has operands of the very types that
-- pg_catalog has it for: nothing in another schema fits better; and no text of it means something else under another
-- setting.
CREATE OR REPLACE FUNCTION pgsched.runs_before_insert() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    problem text;
    told text;
    more jsonb;
BEGIN
    IF NEW.kind = 'task' AND (pg_catalog.pg_sequence_last_value('pgsched.tasks_with_options'::regclass)
        >> pg_catalog.mod(pg_catalog.hashtext(NEW.task) & 2147483647, 61)) & 1::bigint = 1::bigint  -- pgsched.has_options
    THEN
        SELECT coalesce(NEW.queue, o.queue), coalesce(NEW.priority, o.priority), coalesce(NEW.max_attempts, o.max_attempts),
            coalesce(NEW.timeout, o.timeout), coalesce(NEW.tags, o.tags), coalesce(NEW.concurrency_key,
                CASE WHEN NEW.job_id IS NULL THEN o.concurrency_key
                     ELSE pgsched.run_key(NULL, o.concurrency_key, NULL, NEW.args) END), o.more
        INTO NEW.queue, NEW.priority, NEW.max_attempts, NEW.timeout, NEW.tags, NEW.concurrency_key, more
        FROM pgsched.task_options(NEW.task) o;
        IF more IS NOT NULL THEN
            NEW := pgsched.take_options(NEW, more);
        END IF;
    END IF;
    IF NEW.queue IS NULL THEN
        NEW.queue := 'default';
    END IF;
    IF NEW.priority IS NULL THEN
        NEW.priority := 5;
    END IF;
    IF NEW.max_attempts IS NULL THEN
        NEW.max_attempts := 3;
    END IF;
    -- a template, which is read once: the key of a job's run is made by who makes the run
    IF NEW.concurrency_key IS NOT NULL AND NEW.job_id IS NULL AND pg_catalog.strpos(NEW.concurrency_key, '{') > 0
        AND pg_catalog.length(NEW.concurrency_key) <= 500
    THEN
        NEW.concurrency_key := pgsched.run_key(NULL, NEW.concurrency_key, NULL, NEW.args);
    END IF;
    IF (NEW.kind IN ('task', 'command', 'shell', 'sql') AND (NEW.job_id IS NULL) = (NEW.scheduled_at IS NULL) AND pg_catalog.btrim(NEW.task) <> ''
        AND pg_catalog.length(NEW.task) <= 65536
        AND (pg_catalog.jsonb_typeof(NEW.args) = 'object'
             OR pg_catalog.jsonb_typeof(NEW.args) = 'array' AND NEW.kind <> 'shell')
        -- of a compressed value the size says nothing; each level takes eight bytes: what is small is not deep
        AND CASE WHEN pg_catalog.pg_column_compression(NEW.args) IS NOT NULL THEN pgsched.args_error('task', NEW.args) IS NULL
                 ELSE pg_catalog.pg_column_size(NEW.args) <= 1600 OR pg_catalog.pg_column_size(NEW.args) <= 1048576
                      AND NOT pg_catalog.jsonb_path_exists(NEW.args, 'strict $.**{201}') END
        -- a slot has the arguments of its job, which were judged when they were written there
        AND (NEW.kind = 'task' OR NEW.origin IN ('schedule', 'backfill') OR pgsched.args_error(NEW.kind, NEW.args) IS NULL)
        AND (NEW.queue = 'default' OR NEW.queue <> '' AND pg_catalog.length(NEW.queue) <= 100
             AND NEW.queue = pg_catalog.btrim(NEW.queue)
             AND NEW.queue !~ E'[\\x01-\\x1f\\x7f]')
        AND NEW.priority BETWEEN 0 AND 9 AND NEW.max_attempts BETWEEN 1 AND 1000
        AND NEW.origin IN ('enqueue', 'schedule', 'manual', 'backfill')
        AND NEW.available_at >= '1970-01-01 00:00Z' AND NEW.available_at < '8998-01-01 00:00Z'
        AND (NEW.scheduled_at IS NULL OR NEW.scheduled_at BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z')
        AND (NEW.expires_at IS NULL OR NEW.expires_at BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z')
        AND (NEW.timeout IS NULL OR NEW.timeout BETWEEN '1 millisecond' AND '10 years')
        AND (NEW.kill_after IS NULL OR NEW.kill_after BETWEEN '0' AND '10 years')
        AND (NEW.backoff IS NULL OR NEW.backoff IN ('exponential', 'fixed', 'linear'))
        AND (NEW.backoff_base IS NULL OR NEW.backoff_base BETWEEN '0' AND '10 years')
        AND (NEW.backoff_max IS NULL OR NEW.backoff_max BETWEEN '0' AND '10 years')
        AND (NEW.backoff_jitter IS NULL OR NEW.backoff_jitter BETWEEN 0::float8 AND 1::float8)
        AND (NEW.concurrency_key IS NULL OR pg_catalog.length(NEW.concurrency_key) BETWEEN 1 AND 500
             AND (NEW.job_id IS NOT NULL OR NEW.concurrency_key !~ '^(job|task)(:|$)'
                  OR NEW.concurrency_key ~ '^task:' AND pgsched.is_own_key(NEW.concurrency_key, NEW.task)))
        AND pg_catalog.num_nonnulls(NEW.unique_key, NEW.tags, NEW.options, NEW.progress, NEW.cancel_reason, NEW.keep) = 0) IS NOT TRUE
    THEN
        problem := coalesce(pgsched.run_slot_error(NEW), pgsched.run_error(NEW), pgsched.run_size_error(
            NEW.unique_key, NEW.tags, NEW.options, NEW.progress, NEW.cancel_reason),
            pgsched.run_marker_error(NEW), pgsched.run_options_error(NEW.kind, NEW.options,
                NEW.available_at = '8999-01-01 00:00Z'));
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
    ELSIF NEW.state = 'waiting' OR NEW.state = 'scheduled'
        AND pg_catalog.pg_sequence_last_value('pgsched.leader_looks_at'::regclass)::float8
            > pg_catalog.date_part('epoch', NEW.available_at) * 1000::float8 THEN
        told := pgsched.tell_leader(CASE NEW.state WHEN 'scheduled' THEN NEW.available_at END);
    END IF;
    RETURN NEW;
END $$;
