CREATE FUNCTION pgsched.sheds_oldest(queue text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pgsched.queues q WHERE q.name = $1 AND q.on_full = 'shed_oldest')
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
