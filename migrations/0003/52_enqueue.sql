-- One function for all clients makes a run, or says which run there is instead. Whoever is first is decided by unique
-- indexes: of unfinished runs (scope while_active), and of kept keys (buckets of time, idempotency keys).

-- The bucket of time that a unique scope names around an instant. Weeks begin on Monday, days at midnight UTC.
CREATE FUNCTION pgsched.unique_bucket(unique_scope text, due timestamptz, OUT name text, OUT ends_at timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted text := substring(unique_scope FROM '^bucket\((.+)\)$');
    period interval;
    starts_at timestamptz;
    problem text;
BEGIN
    BEGIN
        period := wanted::interval;
    EXCEPTION WHEN data_exception THEN
        wanted := NULL;
    END;
    problem := CASE
        WHEN wanted IS NULL THEN format('unique_scope: "%s" is neither while_active nor bucket(a period, as in 1 hour)',
                                        left(unique_scope, 60))
        WHEN extract(month FROM period) <> 0 OR extract(year FROM period) <> 0 THEN
            'unique_scope: a period has no months or years: they differ in length'
        ELSE pgsched.bad_interval('unique_scope', period, '1 second') END;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    starts_at := date_bin(period, due, '2001-01-01 00:00Z');
    name := format('bucket %s %s', extract(epoch FROM period), extract(epoch FROM starts_at));
    ends_at := starts_at + period;
END $$;

-- The unfinished run that has a unique key, if it is one's own: that of somebody else is in the way all the same.
CREATE FUNCTION pgsched.run_of_key(unique_key text) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r record;
BEGIN
    SELECT o.id, o.owner INTO r FROM pgsched.runs o WHERE o.unique_key = run_of_key.unique_key AND o.phase < 3;
    PERFORM pgsched.refuse_others('the run that has the unique key', r.owner) WHERE r.id IS NOT NULL;
    RETURN r.id;
END $$;

-- What a run that has the key already becomes. Returns: existing (unchanged), replaced, rejected; null: it has ended.
-- Payload and time change only while it is not running; to claim it, a worker must hold its row.
CREATE FUNCTION pgsched.meet_run(existing bigint, on_conflict text, task text, args jsonb, due timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.runs;
    later boolean;
    held boolean;
BEGIN
    IF on_conflict = 'reject' THEN
        RETURN 'rejected';
    ELSIF on_conflict = 'return' THEN
        RETURN 'existing';
    END IF;
    SELECT * INTO r FROM pgsched.runs WHERE id = existing FOR NO KEY UPDATE;
    PERFORM pgsched.refuse_others(format('run %s, which has the key,', r.id), r.owner) WHERE r.id IS NOT NULL;
    IF r.id IS NULL OR r.phase >= 3 THEN
        RETURN NULL;
    ELSIF r.task <> meet_run.task THEN
        PERFORM pgsched.raise_bad_value(format('unique_key: run %s has it, of task "%s": it cannot take the payload of'
            ' another', r.id, left(r.task, 100)), 'runs');
    ELSIF r.state = 'running' THEN
        RETURN 'existing';
    END IF;
    held := r.state = 'waiting' AND r.available_at >= '8998-01-01 00:00Z';
    later := on_conflict = 'replace' AND due > clock_timestamp()
        AND (r.state = 'queued' OR r.state = 'waiting' AND r.ready_at IS NOT NULL);
    UPDATE pgsched.runs SET args = meet_run.args,
        -- one that waits for other runs keeps its marker (43_dependencies.sql)
        available_at = CASE WHEN on_conflict = 'replace' AND NOT held THEN due ELSE available_at END,
        options = CASE WHEN on_conflict = 'replace' AND held
                       THEN coalesce(options, '{}') || jsonb_build_object('not_before', due) ELSE options END,
        -- the way back to queued is the leader's; ready_at: only limits hold it
        state = CASE WHEN later THEN 'scheduled' ELSE r.state END,
        ready_at = CASE WHEN NOT later THEN r.ready_at END
    WHERE id = r.id;
    IF on_conflict = 'replace' THEN
        PERFORM pg_notify('pgsched_leader', 'runs');
    END IF;
    RETURN 'replaced';
END $$;

-- Refuses what is wrong with the options of an enqueue that its row does not show.
CREATE FUNCTION pgsched.check_keys(unique_key text, on_conflict text, idempotency_key text, retention interval,
    tags text[], due timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := coalesce(
        CASE WHEN unique_key IS NOT NULL THEN pgsched.bad_text('unique_key', unique_key, 500) END,
        pgsched.not_one_of('on_conflict', on_conflict, ARRAY['return', 'reject', 'replace', 'keep_time']),
        CASE WHEN idempotency_key IS NOT NULL THEN pgsched.bad_text('idempotency_key', idempotency_key, 500) END,
        pgsched.bad_interval('idempotency_retention', retention, '1 second'),
        CASE WHEN tags IS NOT NULL THEN pgsched.bad_tags(tags) END,
        pgsched.bad_instant('at', due));
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
END $$;

-- Makes a run, or finds the one that stands for it: `how` is created, existing (it has the unique key), replaced (it
-- has, and took the new payload), rejected (it has, and on_conflict is reject), repeated (the idempotency key has been
-- used).
-- A run that is made waits for all runs of `after` and one of `after_any` (43_dependencies.sql).
-- NULL takes the default.
CREATE FUNCTION pgsched.enqueue_result(task text, args jsonb DEFAULT '{}', kind text DEFAULT 'python',
    queue text DEFAULT 'default', priority integer DEFAULT 5, delay interval DEFAULT NULL,
    at timestamptz DEFAULT NULL, unique_key text DEFAULT NULL, max_attempts integer DEFAULT 3,
    timeout interval DEFAULT NULL, unique_scope text DEFAULT 'while_active', on_conflict text DEFAULT 'return',
    idempotency_key text DEFAULT NULL, idempotency_retention interval DEFAULT '24 hours', tags text[] DEFAULT NULL,
    available_at timestamptz DEFAULT NULL, after bigint[] DEFAULT NULL, after_any bigint[] DEFAULT NULL,
    on_failure text DEFAULT 'cancel', concurrency_key text DEFAULT NULL, OUT id bigint, OUT how text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    due timestamptz := coalesce(enqueue_result.at, enqueue_result.available_at, clock_timestamp() + delay,
                                clock_timestamp());
    policy text := coalesce(enqueue_result.on_conflict, 'return');
    bucket text;  -- null: the unique scope is while_active
    bucket_ends_at timestamptz;
    first_task text;
BEGIN
    IF coalesce(unique_key, idempotency_key) IS NOT NULL OR tags IS NOT NULL OR policy <> 'return' THEN
        PERFORM pgsched.check_keys(unique_key, policy, idempotency_key, idempotency_retention, tags, due);
    END IF;
    IF idempotency_key IS NOT NULL THEN
        SELECT t.run_id, t.by_task INTO enqueue_result.id, first_task FROM pgsched.take_key('idempotency',
            idempotency_key, task, clock_timestamp() + coalesce(idempotency_retention, interval '24 hours')) t;
        IF first_task <> enqueue_result.task THEN
            PERFORM pgsched.raise_bad_value(format('idempotency_key: "%s" was used for run %s of task "%s"',
                left(idempotency_key, 60), enqueue_result.id, left(first_task, 100)), 'runs');
        ELSIF enqueue_result.id IS NOT NULL THEN
            how := 'repeated';
            RETURN;
        END IF;
    END IF;
    IF unique_key IS NOT NULL AND unique_scope <> 'while_active' THEN
        SELECT b.name, b.ends_at INTO bucket, bucket_ends_at FROM pgsched.unique_bucket(unique_scope, due) b;
        -- a day longer than it must: nothing depends on when exactly the bucket is over
        SELECT t.run_id INTO enqueue_result.id FROM pgsched.take_key(bucket, unique_key, task,
            greatest(bucket_ends_at, clock_timestamp()) + interval '1 day') t;
        IF enqueue_result.id IS NOT NULL THEN
            how := coalesce(pgsched.meet_run(enqueue_result.id, policy, task, args, due), 'existing');
        END IF;
    END IF;
    -- A queue with a max_depth is asked for room, and may cancel a run for it, before the index says that none is needed.
    -- Not in a snapshot of its own, where the run may have ended since.
    IF how IS NULL AND bucket IS NULL AND unique_key IS NOT NULL
        AND current_setting('transaction_isolation') = 'read committed'
        AND EXISTS (SELECT FROM pgsched.queues q WHERE q.name = coalesce(enqueue_result.queue, 'default')
                                                   AND q.max_depth IS NOT NULL)
    THEN
        SELECT r.id INTO enqueue_result.id FROM pgsched.runs r
        WHERE r.unique_key = enqueue_result.unique_key AND r.phase < 3;
        IF FOUND THEN
            how := pgsched.meet_run(enqueue_result.id, policy, task, args, due);
        END IF;
    END IF;
    WHILE how IS NULL LOOP
        INSERT INTO pgsched.runs (task, args, kind, queue, priority, available_at, unique_key, max_attempts, timeout,
                                  idempotency_key, tags, concurrency_key)
        VALUES (enqueue_result.task, coalesce(enqueue_result.args, '{}'), coalesce(enqueue_result.kind, 'python'),
                coalesce(enqueue_result.queue, 'default'), coalesce(enqueue_result.priority, 5)::smallint, due,
                CASE WHEN bucket IS NULL THEN enqueue_result.unique_key END,
                coalesce(enqueue_result.max_attempts, 3), enqueue_result.timeout, enqueue_result.idempotency_key,
                enqueue_result.tags, enqueue_result.concurrency_key)
        ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND phase < 3 DO NOTHING
        RETURNING id INTO enqueue_result.id;
        IF FOUND THEN
            how := 'created';
            PERFORM pgsched.hold_back(enqueue_result.id, after, after_any, on_failure)
            WHERE after IS NOT NULL OR after_any IS NOT NULL;
        ELSE
            enqueue_result.id := pgsched.run_of_key(unique_key);
            -- the run that was in the way may have ended between two statements: then it is tried again
            IF enqueue_result.id IS NOT NULL THEN
                how := pgsched.meet_run(enqueue_result.id, policy, task, args, due);
            END IF;
        END IF;
    END LOOP;
    IF how = 'rejected' THEN  -- what was refused may be asked for again with the same key
        DELETE FROM pgsched.kept_keys k WHERE k.scope = 'idempotency' AND k.key = enqueue_result.idempotency_key;
    ELSIF idempotency_key IS NOT NULL OR bucket IS NOT NULL THEN
        UPDATE pgsched.kept_keys k SET run_id = enqueue_result.id WHERE k.run_id IS NULL
            AND (k.scope = 'idempotency' AND k.key = enqueue_result.idempotency_key
                 OR k.scope = bucket AND k.key = enqueue_result.unique_key);
    END IF;
END $$;

DROP FUNCTION pgsched.enqueue(text, jsonb, text, text, integer, interval, timestamptz, text, integer, interval);

-- The same for who wants only the run's id. on_conflict => 'reject' raises unique_violation.
CREATE FUNCTION pgsched.enqueue(task text, args jsonb DEFAULT '{}', kind text DEFAULT 'python',
    queue text DEFAULT 'default', priority integer DEFAULT 5, delay interval DEFAULT NULL,
    at timestamptz DEFAULT NULL, unique_key text DEFAULT NULL, max_attempts integer DEFAULT 3,
    timeout interval DEFAULT NULL, unique_scope text DEFAULT 'while_active', on_conflict text DEFAULT 'return',
    idempotency_key text DEFAULT NULL, idempotency_retention interval DEFAULT '24 hours', tags text[] DEFAULT NULL,
    available_at timestamptz DEFAULT NULL, after bigint[] DEFAULT NULL, after_any bigint[] DEFAULT NULL,
    on_failure text DEFAULT 'cancel', concurrency_key text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    got record := pgsched.enqueue_result(task, args, kind, queue, priority, delay, at, unique_key, max_attempts,
        timeout, unique_scope, on_conflict, idempotency_key, idempotency_retention, tags, available_at,
        after, after_any, on_failure, concurrency_key);
BEGIN
    IF got.how = 'rejected' THEN
        RAISE EXCEPTION USING ERRCODE = 'unique_violation', COLUMN = 'unique_key', TABLE = 'runs', SCHEMA = 'pgsched',
            MESSAGE = format('unique_key: run %s has "%s" already', got.id, left(unique_key, 60));
    END IF;
    RETURN got.id;
END $$;
