-- What a run that has the key already becomes. Returns: existing (unchanged), replaced, rejected; null: it has ended.
-- Payload and time change only while it is not running; to claim it, a worker must hold its row.
CREATE OR REPLACE FUNCTION pgsched.meet_run(existing bigint, on_conflict text, task text, args jsonb, due timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.runs;
    later boolean;
    held boolean;
    problem text;
BEGIN
    IF on_conflict = 'reject' THEN
        RETURN 'rejected';
    ELSIF on_conflict = 'return' THEN
        RETURN 'existing';
    END IF;
    problem := coalesce(pgsched.not_one_of('on_conflict', on_conflict, ARRAY['replace', 'keep_time']), CASE
        WHEN due IS NULL THEN 'at: must not be null'
        WHEN due >= '8998-01-01 00:00Z' THEN  -- the leader's markers
            format('at: %s is not an instant between 1970 and 8997', due)
        ELSE pgsched.bad_instant('at', due) END);
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    PERFORM pgsched.refuse_others(format('run %s, which has the key,', o.id), o.owner) FROM pgsched.runs o WHERE o.id = existing;
    SELECT * INTO r FROM pgsched.runs WHERE id = existing FOR NO KEY UPDATE;
    PERFORM pgsched.refuse_others(format('run %s, which has the key,', r.id), r.owner) WHERE r.id IS NOT NULL;
    IF r.id IS NULL OR r.phase >= 3 /* ended */ THEN
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
    IF r.owner <> pgsched.caller() THEN  -- as an operator, say, who may change anybody's
        PERFORM pgsched.note('changed', 'run', r.id::text, pgsched.audited_change(
            jsonb_build_object('args', r.args, 'available_at', r.available_at),
            (SELECT jsonb_build_object('args', n.args, 'available_at', n.available_at) FROM pgsched.runs n WHERE n.id = r.id)));
    END IF;
    IF on_conflict = 'replace' THEN
        PERFORM pgsched.tell_leader();
    END IF;
    RETURN 'replaced';
END $$;

-- Makes a run, or finds the one that stands for it. `how` is created, existing (it has the unique key), replaced (it has,
-- and took the new payload), rejected (it has, and on_conflict is reject), repeated (the idempotency key has been used).
-- A run that is made waits for all runs of `after` and one of `after_any` (43_dependencies.sql). NULL takes
-- the task's option (pgsched.tasks) or else the default.
-- Kept keys are written by take_key and bind_key alone.
CREATE OR REPLACE FUNCTION pgsched.enqueue_result(task text, args jsonb DEFAULT '{}', kind text DEFAULT 'task',
    queue text DEFAULT NULL, priority integer DEFAULT NULL, delay interval DEFAULT NULL,
    at timestamptz DEFAULT NULL, unique_key text DEFAULT NULL, max_attempts integer DEFAULT NULL,
    timeout interval DEFAULT NULL, unique_scope text DEFAULT 'while_active', on_conflict text DEFAULT 'return',
    idempotency_key text DEFAULT NULL, idempotency_retention interval DEFAULT '24 hours', tags text[] DEFAULT NULL,
    available_at timestamptz DEFAULT NULL, after bigint[] DEFAULT NULL, after_any bigint[] DEFAULT NULL,
    on_failure text DEFAULT 'cancel', concurrency_key text DEFAULT NULL, OUT id bigint, OUT how text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    due timestamptz;
    policy text := coalesce(enqueue_result.on_conflict, 'return');
    bucket text;  -- null: the unique scope is while_active
    bucket_ends_at timestamptz;
    first_task text;
BEGIN
    -- one that is no smallint, and one that leads out of all times, would fail on their way into the row
    IF task IS NULL OR priority NOT BETWEEN 0 AND 9 OR delay NOT BETWEEN '0' AND '6900 years' THEN
        PERFORM pgsched.raise_bad_value(coalesce(CASE WHEN task IS NULL THEN 'task: must not be null' END,
            CASE WHEN delay < '0' THEN format('delay: %s is negative', delay) END, pgsched.out_of_range('priority', coalesce(priority, 5), 0, 9),
            format('delay: %s leads out of the time between 1970 and 9000', delay)), 'runs');
    END IF;
    due := coalesce(enqueue_result.at, enqueue_result.available_at, clock_timestamp() + delay, clock_timestamp());
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
        AND EXISTS (SELECT FROM pgsched.queues q WHERE q.name = coalesce(enqueue_result.queue,
                        CASE WHEN coalesce(kind, 'task') = 'task' THEN (pgsched.task_options(task)).queue END, 'default')
                                                   AND q.max_depth IS NOT NULL)
    THEN
        SELECT r.id INTO enqueue_result.id FROM pgsched.runs r
        WHERE r.unique_key = enqueue_result.unique_key AND r.phase < 3 /* open */;
        IF FOUND THEN
            how := pgsched.meet_run(enqueue_result.id, policy, task, args, due);
        END IF;
    END IF;
    WHILE how IS NULL LOOP
        INSERT INTO pgsched.runs (task, args, kind, queue, priority, available_at, unique_key, max_attempts, timeout,
                                  idempotency_key, tags, concurrency_key)
        VALUES (enqueue_result.task, coalesce(enqueue_result.args, '{}'), coalesce(enqueue_result.kind, 'task'),
                enqueue_result.queue, enqueue_result.priority::smallint, due,
                CASE WHEN bucket IS NULL THEN enqueue_result.unique_key END,
                enqueue_result.max_attempts, enqueue_result.timeout, enqueue_result.idempotency_key,
                enqueue_result.tags, enqueue_result.concurrency_key)
        ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND phase < 3 /* open */ DO NOTHING
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
        PERFORM pgsched.bind_key('idempotency', enqueue_result.idempotency_key, NULL) WHERE idempotency_key IS NOT NULL;
    ELSE
        PERFORM pgsched.bind_key('idempotency', enqueue_result.idempotency_key, enqueue_result.id)
        WHERE idempotency_key IS NOT NULL;
        PERFORM pgsched.bind_key(bucket, enqueue_result.unique_key, enqueue_result.id) WHERE bucket IS NOT NULL;
    END IF;
END $$;

-- The same for who wants only the run's id. on_conflict => 'reject' raises unique_violation.
CREATE OR REPLACE FUNCTION pgsched.enqueue(task text, args jsonb DEFAULT '{}', kind text DEFAULT 'task',
    queue text DEFAULT NULL, priority integer DEFAULT NULL, delay interval DEFAULT NULL,
    at timestamptz DEFAULT NULL, unique_key text DEFAULT NULL, max_attempts integer DEFAULT NULL,
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
