-- What hostile values showed (tests/fuzz): each is refused in our words.

-- Makes a run, or finds the one that stands for it (0003/52_enqueue.sql).
CREATE OR REPLACE FUNCTION pgsched.enqueue_result(task text, args jsonb DEFAULT '{}', kind text DEFAULT 'python',
    queue text DEFAULT 'default', priority integer DEFAULT 5, delay interval DEFAULT NULL,
    at timestamptz DEFAULT NULL, unique_key text DEFAULT NULL, max_attempts integer DEFAULT 3,
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

-- Asks a run to end; one that has not begun ends at once (0003/60_audit.sql).
-- cancelled, requested, or the terminal state it already had; NULL when there is no such run.
CREATE OR REPLACE FUNCTION pgsched.cancel(run_id bigint, why text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.runs;
    author text := format('cancelled by %s%s', session_user, coalesce(': ' || why, ''));
BEGIN
    IF length(why) > 10000 THEN  -- it becomes the run's reason, beside its error (runs_texts_size)
        PERFORM pgsched.raise_bad_value(pgsched.bad_length('why', why, 10000), 'runs');
    END IF;
    SELECT * INTO r FROM pgsched.runs WHERE id = run_id FOR NO KEY UPDATE;
    IF r.id IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.refuse_others(format('run %s', r.id), r.owner);
    IF r.phase >= 3 THEN
        RETURN r.state;
    END IF;
    PERFORM pgsched.note('cancelled', 'run', r.id::text,
        jsonb_build_object('state', r.state, 'task', left(r.task, 200), 'why', left(cancel.why, 1000)));
    IF r.state = 'running' THEN
        UPDATE pgsched.runs SET cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),
            cancel_reason = author WHERE id = run_id;
        PERFORM pg_notify('pgsched_cancel', run_id::text);
        RETURN 'requested';
    END IF;
    UPDATE pgsched.runs SET state = 'cancelled', finished_at = clock_timestamp(), reason = author WHERE id = run_id;
    PERFORM pg_notify('pgsched_leader', 'runs');
    RETURN 'cancelled';
END $$;

-- Ends a backfill with its open runs (0003/60_audit.sql); the reason is kept with each of them.
CREATE OR REPLACE FUNCTION pgsched.cancel_backfill(backfill_id bigint, why text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    b pgsched.backfills;
    author text := format('%s%s', session_user, coalesce(': ' || cancel_backfill.why, ''));
BEGIN
    IF length(why) > 9000 THEN  -- with some words more, it is the reason of each run (cancel)
        PERFORM pgsched.raise_bad_value(pgsched.bad_length('why', why, 9000), 'backfills');
    END IF;
    -- the leader holds this row while it starts runs: none can be born after the loop below has looked
    SELECT * INTO b FROM pgsched.backfills WHERE id = cancel_backfill.backfill_id FOR UPDATE;
    IF b.id IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.refuse_others(format('backfill %s', b.id), (SELECT j.owner FROM pgsched.jobs j WHERE j.id = b.job_id));
    IF b.finished_at IS NOT NULL THEN
        RETURN CASE WHEN b.cancelled_at IS NULL THEN 'finished' ELSE 'cancelled' END;
    END IF;
    PERFORM pgsched.note('cancelled', 'backfill', b.id::text,
        jsonb_build_object('job', b.job, 'why', left(cancel_backfill.why, 1000)));
    UPDATE pgsched.backfills SET cancelled_at = clock_timestamp(), finished_at = clock_timestamp(),
        cancelled_by = author WHERE id = b.id;
    PERFORM pgsched.cancel(r.id, format('backfill %s was cancelled%s', b.id, coalesce(': ' || cancel_backfill.why, '')))
    FROM (SELECT id FROM pgsched.runs WHERE backfill_id = b.id AND phase < 3 ORDER BY id) r;
    RETURN 'cancelled';
END $$;
