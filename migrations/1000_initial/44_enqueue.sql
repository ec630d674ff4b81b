-- One function for all clients makes a run, or says which run there is instead. Whoever is first is decided by unique
-- indexes: of unfinished runs (scope while_active), and of kept keys (buckets of time, idempotency keys).
--
-- A key that is kept belongs to the role that took it (column owner), as long as it is kept: who may not act for that role
-- is refused, as with a unique key that another owner's open run has. Where roles are in force take_key and bind_key run
-- as the tables' owner, and nobody else writes the table.

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

-- Takes a key for a run that is about to be made, or tells whose it is: `run_id` is null if it is the caller's now.
-- Waits for a transaction that is just taking the same key.
CREATE FUNCTION pgsched.take_key(scope text, key text, task text, expires_at timestamptz,
    OUT run_id bigint, OUT by_task text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    holder name;
BEGIN
    LOOP
        INSERT INTO pgsched.kept_keys (scope, key, task, expires_at)
        VALUES (take_key.scope, take_key.key, take_key.task, take_key.expires_at)
        ON CONFLICT (scope, key) DO NOTHING;
        EXIT WHEN FOUND;
        SELECT k.run_id, k.task, k.owner INTO take_key.run_id, take_key.by_task, holder FROM pgsched.kept_keys k
        WHERE k.scope = take_key.scope AND k.key = take_key.key AND k.expires_at > clock_timestamp()
            AND k.run_id IS NOT NULL;
        IF FOUND THEN
            -- null: there are no roles, or it is from before there were; then it gives no second run to anybody
            PERFORM pgsched.refuse_others(format('the %s "%s"', CASE take_key.scope WHEN 'idempotency'
                THEN 'idempotency_key' ELSE 'unique_key' END, left(take_key.key, 60)), holder) WHERE holder IS NOT NULL;
            EXIT;
        END IF;
        -- one that has expired, or stands for no run, is taken over by one of those who come; the others find it taken
        UPDATE pgsched.kept_keys k SET run_id = NULL, task = take_key.task, created_at = clock_timestamp(),
            expires_at = take_key.expires_at, state = NULL, result = NULL, error = NULL, finished_at = NULL
        WHERE k.scope = take_key.scope AND k.key = take_key.key
            AND (k.expires_at <= clock_timestamp() OR k.run_id IS NULL);
        EXIT WHEN FOUND;
    END LOOP;
END $$;

-- The key that was just taken stands for this run from now on; if for none, it is free again. One that stands for a run
-- already stays as it is. Who binds it is its owner: also of one that somebody else took and never bound.
CREATE FUNCTION pgsched.bind_key(scope text, key text, run_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF bind_key.run_id IS NULL THEN
        DELETE FROM pgsched.kept_keys k
        WHERE k.scope = bind_key.scope AND k.key = bind_key.key AND k.run_id IS NULL;
    ELSE
        UPDATE pgsched.kept_keys k SET run_id = bind_key.run_id, owner = DEFAULT
        WHERE k.scope = bind_key.scope AND k.key = bind_key.key AND k.run_id IS NULL;
    END IF;
END $$;

-- An INSERT that names a key by itself would have it ignored: only pgsched.enqueue takes keys.
CREATE FUNCTION pgsched.refuse_untaken_key() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pgsched.kept_keys k
                   WHERE k.scope = 'idempotency' AND k.key = NEW.idempotency_key AND k.run_id IS NULL) THEN
        PERFORM pgsched.raise_bad_value(
            'idempotency_key: an INSERT cannot keep it: use pgsched.enqueue(..., idempotency_key => ...)', 'runs');
    END IF;
    RETURN NEW;
END $$;

-- A key that has met another run (a unique key was in the way) is not in that run's row: the pruner finds it by the run.
-- One that has expired and is taken over stands for no run yet.
CREATE FUNCTION pgsched.kept_keys_met() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.met := CASE WHEN NEW.run_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM pgsched.runs r WHERE r.id = NEW.run_id AND r.idempotency_key = NEW.key) THEN true END;
    RETURN NEW;
END $$;

-- The run that the first enqueue with an idempotency key gave, and what became of it; no row once the key has expired.
CREATE FUNCTION pgsched.first_result(idempotency_key text)
RETURNS TABLE (run_id bigint, state text, result jsonb, error text, finished_at timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT k.run_id, coalesce(r.state, k.state), CASE WHEN r.id IS NULL THEN k.result ELSE r.result END,
        CASE WHEN r.id IS NULL THEN k.error ELSE r.error END, coalesce(r.finished_at, k.finished_at)
    FROM pgsched.kept_keys k LEFT JOIN pgsched.runs r ON r.id = k.run_id
    WHERE k.scope = 'idempotency' AND k.key = first_result.idempotency_key AND k.expires_at > clock_timestamp()
$$;

-- The unfinished run that has a unique key, if it is one's own: that of somebody else is in the way all the same.
CREATE FUNCTION pgsched.run_of_key(unique_key text) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r record;
BEGIN
    SELECT o.id, o.owner INTO r FROM pgsched.runs o WHERE o.unique_key = run_of_key.unique_key AND o.phase < 3 /* open */;
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

-- Makes a run, or finds the one that stands for it. `how` is created, existing (it has the unique key), replaced (it has,
-- and took the new payload), rejected (it has, and on_conflict is reject), repeated (the idempotency key has been used).
-- A run that is made waits for all runs of `after` and one of `after_any` (43_dependencies.sql). NULL takes the default.
-- Kept keys are written by take_key and bind_key alone.
CREATE FUNCTION pgsched.enqueue_result(task text, args jsonb DEFAULT '{}', kind text DEFAULT 'task',
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
        WHERE r.unique_key = enqueue_result.unique_key AND r.phase < 3 /* open */;
        IF FOUND THEN
            how := pgsched.meet_run(enqueue_result.id, policy, task, args, due);
        END IF;
    END IF;
    WHILE how IS NULL LOOP
        INSERT INTO pgsched.runs (task, args, kind, queue, priority, available_at, unique_key, max_attempts, timeout,
                                  idempotency_key, tags, concurrency_key)
        VALUES (enqueue_result.task, coalesce(enqueue_result.args, '{}'), coalesce(enqueue_result.kind, 'task'),
                coalesce(enqueue_result.queue, 'default'), coalesce(enqueue_result.priority, 5)::smallint, due,
                CASE WHEN bucket IS NULL THEN enqueue_result.unique_key END,
                coalesce(enqueue_result.max_attempts, 3), enqueue_result.timeout, enqueue_result.idempotency_key,
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
CREATE FUNCTION pgsched.enqueue(task text, args jsonb DEFAULT '{}', kind text DEFAULT 'task',
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
