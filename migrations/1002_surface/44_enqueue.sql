-- Enqueueing with every option of a run: keys of arguments, scopes, merging, back-off, expiry and retention.

DROP FUNCTION pgsched.enqueue(text, jsonb, text, text, integer, interval, timestamptz, text, integer, interval, text, text,
    text, interval, text[], timestamptz, bigint[], bigint[], text, text);
DROP FUNCTION pgsched.enqueue_result(text, jsonb, text, text, integer, interval, timestamptz, text, integer, interval, text,
    text, text, interval, text[], timestamptz, bigint[], bigint[], text, text);
DROP FUNCTION pgsched.meet_run(bigint, text, text, jsonb, timestamptz);
DROP FUNCTION pgsched.bind_key(text, text, bigint);

-- ---- the key of a run

-- A JSON value in the one form that all equal values share: numbers without trailing zeros. PostgreSQL orders the keys of
-- an object and keeps the last of two equal ones.
CREATE FUNCTION pgsched.canonical_json(value jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE jsonb_typeof(value)
        WHEN 'number' THEN to_jsonb(trim_scale(value::numeric))
        WHEN 'array' THEN (SELECT coalesce(jsonb_agg(pgsched.canonical_json(e.item) ORDER BY e.place), '[]')
                           FROM jsonb_array_elements(value) WITH ORDINALITY e(item, place))
        WHEN 'object' THEN (SELECT coalesce(jsonb_object_agg(e.key, pgsched.canonical_json(e.value)), '{}')
                            FROM jsonb_each(value) e)
        ELSE value END;
END $$;

-- An argument as a key has it. What is not given takes its default; an argument without one must be given.
CREATE FUNCTION pgsched.key_argument(field text, name text, args jsonb, defaults jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    given jsonb := coalesce(CASE jsonb_typeof(args) WHEN 'object' THEN args -> name
        WHEN 'array' THEN CASE WHEN name ~ E'^\\d{1,4}$' THEN args -> name::integer END END, defaults -> name);
BEGIN
    IF given IS NULL THEN
        PERFORM pgsched.raise_bad_value(format('%s: the run has no argument "%s", and it has no default', field,
            left(name, 60)), 'runs');
    END IF;
    RETURN pgsched.canonical_json(given);
END $$;

-- The unique key that a template makes of the arguments, as JSON writes them: two values that differ give two keys. One
-- pass over the template: braces in an argument are text. A long key ends with a hash of the whole.
CREATE FUNCTION pgsched.template_key(template text, args jsonb, defaults jsonb DEFAULT NULL) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := CASE WHEN template IS NOT NULL THEN pgsched.args_error('task', args) END;
    made text;
BEGIN
    IF problem IS NOT NULL THEN  -- what is nested deeper than a run allows is not looked into
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    -- of two that match at one place the longer one is taken: a name in braces before the brace alone
    SELECT string_agg(CASE WHEN p.name IS NULL THEN p.part
            ELSE replace(pgsched.key_argument('unique_key', p.name, args, defaults)::text, chr(127), E'\\u007f') END,
            '' ORDER BY p.n) INTO made
    FROM (SELECT m[1] AS part, substring(m[1] FROM E'^\\{([^{}]+)\\}$') AS name, n
          FROM regexp_matches(template, E'(\\{[^{}]+\\}|\\{|[^{]+)', 'g') WITH ORDINALITY AS r(m, n)) p;
    RETURN CASE WHEN length(made) <= 500 THEN made
        ELSE left(made, 400) || ' ' || encode(sha256(convert_to(made, 'UTF8')), 'hex') END;
END $$;

-- The unique key of a task's run by its arguments: `names` of them, or all ('{*}'), each with its default where it is not
-- given.
CREATE FUNCTION pgsched.arguments_key(task text, args jsonb, names text[], defaults jsonb DEFAULT NULL) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := CASE WHEN cardinality(names) = 0 OR array_position(names, NULL) IS NOT NULL
            THEN 'unique_by: expected the names of arguments, or {*} for all'
        WHEN names IS NOT NULL THEN pgsched.args_error('task', args) END;
    chosen jsonb;
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    ELSIF names IS NULL THEN
        RETURN NULL;
    ELSIF names = '{*}' THEN
        chosen := CASE jsonb_typeof(args) WHEN 'object' THEN coalesce(defaults, '{}') || args ELSE args END;
    ELSE
        SELECT jsonb_object_agg(n.name, pgsched.key_argument('unique_by', n.name, args, defaults)) INTO chosen
        FROM unnest(names) n(name);
    END IF;
    RETURN btrim(regexp_replace(left(task, 200), E'[\\x01-\\x1f\\x7f]', '?', 'g')) || ' '
        || encode(sha256(convert_to(task || ' ' || pgsched.canonical_json(chosen)::text, 'UTF8')), 'hex');
END $$;

-- What is wrong with a unique scope.
CREATE FUNCTION pgsched.unique_scope_error(unique_scope text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET IntervalStyle = 'postgres' AS $$
DECLARE
    wanted text := substring(unique_scope FROM E'^(?:bucket|sliding)\\((.+)\\)$');
    period interval;
BEGIN
    IF unique_scope IN ('while_active', 'while_queued') THEN
        RETURN NULL;
    END IF;
    BEGIN
        period := wanted::interval;
    EXCEPTION WHEN data_exception THEN
        wanted := NULL;
    END;
    RETURN CASE
        WHEN wanted IS NULL THEN format('unique_scope: "%s" is neither while_active nor while_queued,'
            ' bucket(a period, as in 1 hour) or sliding(a period)', left(unique_scope, 60))
        WHEN extract(month FROM period) <> 0 OR extract(year FROM period) <> 0 THEN
            'unique_scope: a period has no months or years: they differ in length'
        ELSE pgsched.bad_interval('unique_scope', period, '1 second') END;
END $$;

-- The name under which a key of this scope is kept, and until when, for a run that is due at this instant. A bucket: weeks
-- begin on Monday, days at midnight UTC. Sliding: `lasts` from the instant at which the run is made.
CREATE OR REPLACE FUNCTION pgsched.unique_bucket(unique_scope text, due timestamptz, OUT name text, OUT ends_at timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET IntervalStyle = 'postgres' SET TimeZone = 'UTC' AS $$
DECLARE
    problem text := pgsched.unique_scope_error(unique_scope);
    period interval;
    starts_at timestamptz;
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    period := substring(unique_scope FROM E'\\((.+)\\)$')::interval;
    IF starts_with(unique_scope, 'sliding') THEN
        name := format('sliding %s', extract(epoch FROM period));
        ends_at := clock_timestamp() + period;
    ELSIF period IS NOT NULL THEN
        starts_at := date_bin(period, due, '2001-01-01 00:00Z');
        name := format('bucket %s %s', extract(epoch FROM period), extract(epoch FROM starts_at));
        ends_at := starts_at + period;
    END IF;
END $$;

-- What the call says of a run that SQL makes, or else the task: its unique key, how that is met, its delay, and how long its
-- idempotency key is kept. A key that is given at
-- a call is taken as it is: one that holds the name of an argument in braces was meant for a template.
CREATE FUNCTION pgsched.resolve_key(task text, args jsonb, kind text, unique_by text[], INOUT unique_key text,
    INOUT unique_scope text, INOUT on_conflict text, INOUT debounce_max interval, INOUT delay interval,
    INOUT idempotency_retention interval)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    t record;
    meant text;
BEGIN
    SELECT * INTO t FROM pgsched.task_keys(CASE WHEN coalesce(kind, 'task') = 'task' THEN task END,
        unique_by IS NOT NULL OR coalesce(strpos(unique_key, '{') > 0, false));
    IF unique_key IS NOT NULL AND unique_by IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value('unique_by: give either unique_key or unique_by, not both', 'runs');
    ELSIF unique_key IS NOT NULL THEN
        SELECT n.name INTO meant FROM (
            SELECT jsonb_object_keys(CASE jsonb_typeof(args) WHEN 'object' THEN args ELSE '{}' END)
            UNION ALL SELECT unnest(t.parameters)) n(name)
        WHERE strpos(unique_key, '{' || n.name || '}') > 0 LIMIT 1;
        IF meant IS NOT NULL THEN
            PERFORM pgsched.raise_bad_value(format('unique_key: "%s" holds {%s}, but a key that is given at a call is taken as'
                ' it is: use unique_by => ''{%s}'', or let the task declare this key', left(unique_key, 60),
                left(meant, 60), left(meant, 60)), 'runs');
        END IF;
    ELSIF unique_by IS NOT NULL THEN
        unique_key := pgsched.arguments_key(task, coalesce(args, '{}'), unique_by, t.defaults);
    ELSE
        unique_key := coalesce(pgsched.template_key(t.unique_key, coalesce(args, '{}'), t.defaults),
                               pgsched.arguments_key(task, coalesce(args, '{}'), t.unique_by, t.defaults));
    END IF;
    unique_scope := coalesce(unique_scope, t.unique_scope);
    on_conflict := coalesce(on_conflict, t.on_conflict);
    debounce_max := coalesce(debounce_max, CASE WHEN on_conflict IN ('replace', 'merge') THEN t.debounce_max END);
    delay := coalesce(delay, t.delay);  -- `at` comes before it
    idempotency_retention := coalesce(idempotency_retention, t.idempotency_retention);
END $$;

-- ---- keys that are kept

-- The key that was just taken stands for this run from now on; if for none, it is free again. One that stands for a run
-- already stays as it is. Who binds it is its owner: also of one that somebody else took and never bound. `lasts`: the key is
-- kept for so long from the instant at which the run was made.
CREATE FUNCTION pgsched.bind_key(scope text, key text, run_id bigint, lasts interval DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF bind_key.run_id IS NULL THEN
        DELETE FROM pgsched.kept_keys k
        WHERE k.scope = bind_key.scope AND k.key = bind_key.key AND k.run_id IS NULL;
    ELSE
        UPDATE pgsched.kept_keys k SET run_id = bind_key.run_id, owner = DEFAULT, expires_at = coalesce(
            (SELECT r.created_at + bind_key.lasts FROM pgsched.runs r WHERE r.id = bind_key.run_id), k.expires_at)
        WHERE k.scope = bind_key.scope AND k.key = bind_key.key AND k.run_id IS NULL;
    END IF;
END $$;

-- Has no worker ever claimed this run, and has it not ended? A claim leaves its token, until the run is reaped (suspect);
-- an end leaves a rerun. No search_path is set, because it is to be inlined; see pgsched.runs_before_insert.
CREATE FUNCTION pgsched.is_unclaimed(state text, attempt integer, token uuid, suspect boolean, reruns integer)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT state IN ('queued', 'scheduled', 'waiting') AND attempt = 0 AND token IS NULL AND suspect IS NOT TRUE
        AND reruns IS NULL
$$;

-- Takes a key of the scope while_queued for a run that is about to be made, or returns the run that has it: one that no
-- worker has claimed yet. That run is locked: no worker claims it before this transaction has ended, so its handler sees
-- what this transaction writes. The first claim gives the key up, without a write: the next who comes finds out.
CREATE FUNCTION pgsched.take_queued_key(key text, task text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held record;
    r record;
    told text;
BEGIN
    LOOP
        INSERT INTO pgsched.kept_keys (scope, key, task, expires_at)
        VALUES ('while_queued', take_queued_key.key, take_queued_key.task, clock_timestamp() + interval '1 day')
        ON CONFLICT ON CONSTRAINT kept_keys_pkey DO NOTHING;
        IF FOUND THEN
            RETURN NULL;
        END IF;
        SELECT k.run_id, k.owner INTO held FROM pgsched.kept_keys k
        WHERE k.scope = 'while_queued' AND k.key = take_queued_key.key;
        CONTINUE WHEN NOT FOUND;
        SELECT o.owner INTO r FROM pgsched.runs o WHERE o.id = held.run_id
            AND pgsched.is_unclaimed(o.state, o.attempt, o.token, o.suspect, o.reruns);
        IF FOUND THEN
            -- before the lock: nobody locks the run of somebody else
            PERFORM pgsched.refuse_others(format('the unique_key "%s"', left(take_queued_key.key, 60)), r.owner);
            SELECT o.queue, o.state INTO r FROM pgsched.runs o WHERE o.id = held.run_id
                AND pgsched.is_unclaimed(o.state, o.attempt, o.token, o.suspect, o.reruns) FOR KEY SHARE;
            IF FOUND THEN
                IF r.state = 'queued' AND pgsched.may_be_asleep() THEN  -- a worker may pass it over while it is locked
                    told := pgsched.tell_workers(r.queue);
                END IF;
                RETURN held.run_id;
            END IF;
        END IF;
        UPDATE pgsched.kept_keys k SET run_id = NULL, task = take_queued_key.task, created_at = clock_timestamp(),
            expires_at = clock_timestamp() + interval '1 day', owner = DEFAULT
        WHERE k.scope = 'while_queued' AND k.key = take_queued_key.key AND k.run_id IS NOT DISTINCT FROM held.run_id;
        IF FOUND THEN
            RETURN NULL;
        END IF;
    END LOOP;
END $$;

-- ---- the run that has the key already

-- What a run that has the key already becomes. Returns: existing (unchanged), replaced, rejected; null: it has ended.
-- Payload and time change only while it is not running; to claim it, a worker must hold its row. `replace` takes the new
-- time, at most debounce_max after the run was made. `keep_time` and `merge` leave the time; `merge` with debounce_max
-- takes it as well.
CREATE FUNCTION pgsched.meet_run(existing bigint, on_conflict text, task text, args jsonb, due timestamptz,
    expires_at timestamptz DEFAULT NULL, debounce_max interval DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.runs;
    moves boolean := on_conflict = 'replace' OR on_conflict = 'merge' AND debounce_max IS NOT NULL;
    new_args jsonb := args;
    new_due timestamptz;
    later boolean;
    held boolean;
    problem text;
BEGIN
    IF on_conflict = 'reject' THEN
        RETURN 'rejected';
    ELSIF on_conflict = 'return' THEN
        RETURN 'existing';
    END IF;
    problem := coalesce(pgsched.not_one_of('on_conflict', on_conflict, ARRAY['replace', 'keep_time', 'merge']), CASE
        WHEN due IS NULL THEN 'at: must not be null'
        WHEN due >= '8998-01-01 00:00Z' THEN  -- the leader's markers
            format('at: %s is not an instant between 1970 and 8997', due)
        ELSE pgsched.bad_instant('at', due) END, pgsched.bad_instant('expires_at', expires_at),
        pgsched.bad_interval('debounce_max', debounce_max, '0'));
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
    IF on_conflict = 'merge' THEN
        IF jsonb_typeof(r.args) IS DISTINCT FROM 'object' OR jsonb_typeof(args) IS DISTINCT FROM 'object' THEN
            PERFORM pgsched.raise_bad_value(
                'on_conflict: merge is for arguments by name; these are a list: use replace or keep_time', 'runs');
        END IF;
        new_args := r.args || (SELECT coalesce(jsonb_object_agg(n.key, CASE
                WHEN jsonb_typeof(n.value) = 'array' AND jsonb_typeof(r.args -> n.key) = 'array'
                THEN (r.args -> n.key) || n.value ELSE n.value END), '{}') FROM jsonb_each(args) n);
    END IF;
    new_due := coalesce(least(due, r.created_at + debounce_max), due);
    held := r.state = 'waiting' AND r.available_at >= '8998-01-01 00:00Z';
    later := moves AND new_due > clock_timestamp()
        AND (r.state = 'queued' OR r.state = 'waiting' AND r.ready_at IS NOT NULL);
    UPDATE pgsched.runs SET args = new_args,
        -- one that waits for other runs keeps its marker (43_dependencies.sql)
        available_at = CASE WHEN moves AND NOT held THEN new_due ELSE available_at END,
        options = CASE WHEN moves AND held
                       THEN coalesce(options, '{}') || jsonb_build_object('not_before', new_due) ELSE options END,
        -- the way back to queued is the leader's; ready_at: only limits hold it
        state = CASE WHEN later THEN 'scheduled' ELSE r.state END,
        ready_at = CASE WHEN NOT later THEN r.ready_at END
    WHERE id = r.id;
    -- a new time has a new expiry: what the call says, or else the task; one that has started once has none
    IF moves AND r.started_at IS NULL AND (r.expires_at IS NOT NULL OR meet_run.expires_at IS NOT NULL) THEN
        UPDATE pgsched.runs SET expires_at = coalesce(meet_run.expires_at, new_due + make_interval(secs =>
            ((pgsched.task_options(r.task)).more ->> 'expires')::float8)) WHERE id = r.id;
    END IF;
    IF r.owner <> pgsched.caller() THEN  -- as an operator, say, who may change anybody's
        PERFORM pgsched.note('changed', 'run', r.id::text, pgsched.audited_change(
            jsonb_build_object('args', r.args, 'available_at', r.available_at),
            (SELECT jsonb_build_object('args', n.args, 'available_at', n.available_at) FROM pgsched.runs n WHERE n.id = r.id)));
    END IF;
    IF moves THEN
        PERFORM pgsched.tell_leader();
    END IF;
    RETURN 'replaced';
END $$;

CREATE OR REPLACE FUNCTION pgsched.check_keys(unique_key text, on_conflict text, idempotency_key text, retention interval,
    tags text[], due timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := coalesce(
        CASE WHEN unique_key IS NOT NULL THEN pgsched.bad_text('unique_key', unique_key, 500) END,
        pgsched.not_one_of('on_conflict', on_conflict, ARRAY['return', 'reject', 'replace', 'keep_time', 'merge']),
        CASE WHEN idempotency_key IS NOT NULL THEN pgsched.bad_text('idempotency_key', idempotency_key, 500) END,
        pgsched.bad_interval('idempotency_retention', retention, '1 second'),
        CASE WHEN tags IS NOT NULL THEN pgsched.bad_tags(tags) END,
        pgsched.bad_instant('at', due));
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
END $$;

-- ---- enqueueing

-- Makes a run, or finds the one that stands for it, with a unique key that is complete already (resolve_key). `how` is
-- created, existing (it has the unique key), replaced (it has, and took the new payload), rejected (it has, and on_conflict
-- is reject), repeated (the idempotency key has been used). A run that is made waits for all runs of `after` and one of
-- `after_any` (43_dependencies.sql). NULL takes the task's option (pgsched.tasks) or else the default.
-- Kept keys are written by take_key, take_queued_key and bind_key alone.
CREATE FUNCTION pgsched.make_run(task text, args jsonb, kind text, queue text, priority integer, delay interval,
    at timestamptz, unique_key text, max_attempts integer, timeout interval, unique_scope text, on_conflict text,
    idempotency_key text, idempotency_retention interval, tags text[], after bigint[], after_any bigint[], on_failure text,
    concurrency_key text, debounce_max interval, kill_after interval, backoff text, backoff_base interval,
    backoff_max interval, backoff_jitter double precision, expires interval, expires_at timestamptz, keep interval,
    OUT id bigint, OUT how text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    due timestamptz;
    expiry timestamptz := make_run.expires_at;
    finds boolean := false;  -- may the unique key lead to a run that stays as it is?
    late text;  -- what is wrong with the expiry of a run that is made now
    problem text;
    policy text := coalesce(make_run.on_conflict, 'return');
    bucket text;  -- null: the unique scope is while_active
    bucket_ends_at timestamptz;
    sliding boolean := false;
    first_task text;
BEGIN
    -- one that is no smallint, and one that leads out of all times, would fail on their way into the row
    IF task IS NULL OR priority NOT BETWEEN 0 AND 9 OR delay NOT BETWEEN '0' AND '6900 years' THEN
        PERFORM pgsched.raise_bad_value(coalesce(CASE WHEN task IS NULL THEN 'task: must not be null' END,
            CASE WHEN delay < '0' THEN format('delay: %s is negative', delay) END, pgsched.out_of_range('priority', coalesce(priority, 5), 0, 9),
            format('delay: %s leads out of the time between 1970 and 9000', delay)), 'runs');
    END IF;
    due := coalesce(make_run.at, clock_timestamp() + delay, clock_timestamp());
    IF coalesce(unique_key, idempotency_key) IS NOT NULL OR tags IS NOT NULL OR policy <> 'return' THEN
        PERFORM pgsched.check_keys(unique_key, policy, idempotency_key, idempotency_retention, tags, due);
    END IF;
    IF expires IS NOT NULL OR expiry IS NOT NULL THEN
        problem := CASE WHEN expires IS NOT NULL AND expiry IS NOT NULL
                THEN 'expires: give either expires or expires_at, not both'
            ELSE coalesce(pgsched.bad_interval('expires', expires, '1 millisecond'), pgsched.bad_instant('at', due),
                pgsched.bad_instant('expires_at', expiry)) END;
        IF expiry <= due THEN  -- a repeated request finds its run all the same
            late := format('expires_at: %s is not later than the run is due', expiry);
            finds := unique_key IS NOT NULL AND policy IN ('return', 'reject');
            problem := coalesce(problem, CASE WHEN idempotency_key IS NULL AND NOT finds THEN late END);
        END IF;
        IF problem IS NOT NULL THEN
            PERFORM pgsched.raise_bad_value(problem, 'runs');
        END IF;
        expiry := coalesce(expiry, least(due + expires, '9000-01-01 00:00Z'));
    END IF;
    IF debounce_max IS NOT NULL AND (policy NOT IN ('replace', 'merge') OR debounce_max < '0') THEN
        PERFORM pgsched.raise_bad_value(coalesce(pgsched.bad_interval('debounce_max', debounce_max, '0'), format(
            'debounce_max: it bounds how far on_conflict replace or merge moves a run; on_conflict is %s', policy)), 'runs');
    END IF;
    IF idempotency_key IS NOT NULL THEN
        SELECT t.run_id, t.by_task INTO make_run.id, first_task FROM pgsched.take_key('idempotency',
            idempotency_key, task, clock_timestamp() + coalesce(idempotency_retention, interval '24 hours')) t;
        IF first_task <> make_run.task THEN
            PERFORM pgsched.raise_bad_value(format('idempotency_key: "%s" was used for run %s of task "%s"',
                left(idempotency_key, 60), make_run.id, left(first_task, 100)), 'runs');
        ELSIF make_run.id IS NOT NULL THEN
            how := 'repeated';
            RETURN;
        END IF;
    END IF;
    IF late IS NOT NULL AND NOT finds THEN
        PERFORM pgsched.raise_bad_value(late, 'runs');
    END IF;
    IF unique_key IS NOT NULL AND unique_scope <> 'while_active' THEN
        IF unique_scope = 'while_queued' THEN
            bucket := unique_scope;
            make_run.id := pgsched.take_queued_key(unique_key, task);
        ELSE
            sliding := starts_with(unique_scope, 'sliding');
            SELECT b.name, b.ends_at INTO bucket, bucket_ends_at FROM pgsched.unique_bucket(unique_scope, due) b;
            -- a bucket's for a day longer than it must: nothing depends on when exactly the bucket is over
            SELECT t.run_id INTO make_run.id FROM pgsched.take_key(bucket, unique_key, task, CASE WHEN sliding
                THEN bucket_ends_at ELSE greatest(bucket_ends_at, clock_timestamp()) + interval '1 day' END) t;
        END IF;
        IF make_run.id IS NOT NULL THEN
            how := coalesce(pgsched.meet_run(make_run.id, policy, task, args, due, expiry, debounce_max), 'existing');
        END IF;
    END IF;
    -- A queue with a max_depth is asked for room, and may cancel a run for it, before the index says that none is needed.
    -- Not in a snapshot of its own, where the run may have ended since.
    IF how IS NULL AND bucket IS NULL AND unique_key IS NOT NULL
        AND current_setting('transaction_isolation') = 'read committed'
        AND EXISTS (SELECT FROM pgsched.queues q WHERE q.name = coalesce(make_run.queue,
                        CASE WHEN coalesce(kind, 'task') = 'task' THEN (pgsched.task_options(task)).queue END, 'default')
                                                   AND q.max_depth IS NOT NULL)
    THEN
        SELECT r.id INTO make_run.id FROM pgsched.runs r
        WHERE r.unique_key = make_run.unique_key AND r.phase < 3 /* open */;
        IF FOUND THEN
            how := pgsched.meet_run(make_run.id, policy, task, args, due, expiry, debounce_max);
        END IF;
    END IF;
    IF late IS NOT NULL AND how IS NULL THEN
        IF bucket IS NULL THEN
            make_run.id := pgsched.run_of_key(unique_key);
            how := CASE WHEN make_run.id IS NOT NULL THEN pgsched.meet_run(make_run.id, policy, task, args, due) END;
        END IF;
        IF how IS NULL THEN
            PERFORM pgsched.raise_bad_value(late, 'runs');
        END IF;
    END IF;
    WHILE how IS NULL LOOP
        INSERT INTO pgsched.runs (task, args, kind, queue, priority, available_at, unique_key, max_attempts, timeout,
                                  idempotency_key, tags, concurrency_key, kill_after, backoff, backoff_base, backoff_max,
                                  backoff_jitter, expires_at, keep)
        VALUES (make_run.task, coalesce(make_run.args, '{}'), coalesce(make_run.kind, 'task'),
                make_run.queue, make_run.priority::smallint, due,
                CASE WHEN bucket IS NULL THEN make_run.unique_key END,
                make_run.max_attempts, make_run.timeout, make_run.idempotency_key,
                make_run.tags, make_run.concurrency_key, make_run.kill_after, make_run.backoff, make_run.backoff_base,
                make_run.backoff_max, make_run.backoff_jitter, expiry, make_run.keep)
        ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND phase < 3 /* open */ DO NOTHING
        RETURNING id INTO make_run.id;
        IF FOUND THEN
            how := 'created';
            PERFORM pgsched.hold_back(make_run.id, after, after_any, coalesce(on_failure, 'cancel'))
            WHERE after IS NOT NULL OR after_any IS NOT NULL;
        ELSE
            make_run.id := pgsched.run_of_key(unique_key);
            -- the run that was in the way may have ended between two statements: then it is tried again
            IF make_run.id IS NOT NULL THEN
                how := pgsched.meet_run(make_run.id, policy, task, args, due, expiry, debounce_max);
            END IF;
        END IF;
    END LOOP;
    IF how = 'rejected' THEN  -- what was refused may be asked for again with the same key
        PERFORM pgsched.bind_key('idempotency', make_run.idempotency_key, NULL) WHERE idempotency_key IS NOT NULL;
    ELSE
        PERFORM pgsched.bind_key('idempotency', make_run.idempotency_key, make_run.id) WHERE idempotency_key IS NOT NULL;
        PERFORM pgsched.bind_key(bucket, make_run.unique_key, make_run.id,
            CASE WHEN sliding THEN make_interval(secs => substr(bucket, 9)::float8) END) WHERE bucket IS NOT NULL;
    END IF;
END $$;

-- Makes a run, or finds the one that stands for it (make_run), with the keys that the call or the task says.
CREATE FUNCTION pgsched.enqueue_result(task text, args jsonb DEFAULT '{}', kind text DEFAULT 'task',
    queue text DEFAULT NULL, priority integer DEFAULT NULL, delay interval DEFAULT NULL,
    at timestamptz DEFAULT NULL, unique_key text DEFAULT NULL, max_attempts integer DEFAULT NULL,
    timeout interval DEFAULT NULL, unique_scope text DEFAULT NULL, on_conflict text DEFAULT NULL,
    idempotency_key text DEFAULT NULL, idempotency_retention interval DEFAULT NULL, tags text[] DEFAULT NULL,
    after bigint[] DEFAULT NULL, after_any bigint[] DEFAULT NULL, on_failure text DEFAULT 'cancel',
    concurrency_key text DEFAULT NULL, unique_by text[] DEFAULT NULL, debounce_max interval DEFAULT NULL,
    kill_after interval DEFAULT NULL, backoff text DEFAULT NULL, backoff_base interval DEFAULT NULL,
    backoff_max interval DEFAULT NULL, backoff_jitter double precision DEFAULT NULL, expires interval DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL, keep interval DEFAULT NULL, OUT id bigint, OUT how text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF unique_by IS NOT NULL OR strpos(unique_key, '{') > 0 OR coalesce(kind, 'task') = 'task' AND pgsched.has_options(task) THEN
        SELECT k.unique_key, k.unique_scope, k.on_conflict, k.debounce_max, k.delay, k.idempotency_retention
        INTO unique_key, unique_scope, on_conflict, debounce_max, delay, idempotency_retention
        FROM pgsched.resolve_key(task, args, kind, unique_by, unique_key, unique_scope, on_conflict, debounce_max, delay,
                                 idempotency_retention) k;
    END IF;
    SELECT m.id, m.how INTO id, how FROM pgsched.make_run(task, args, kind, queue, priority, delay, at, unique_key,
        max_attempts, timeout, unique_scope, on_conflict, idempotency_key, idempotency_retention, tags, after, after_any,
        on_failure, concurrency_key, debounce_max, kill_after, backoff, backoff_base, backoff_max, backoff_jitter,
        expires, expires_at, keep) m;
END $$;

-- The same for who wants only the run's id. on_conflict => 'reject' raises unique_violation.
CREATE FUNCTION pgsched.enqueue(task text, args jsonb DEFAULT '{}', kind text DEFAULT 'task',
    queue text DEFAULT NULL, priority integer DEFAULT NULL, delay interval DEFAULT NULL,
    at timestamptz DEFAULT NULL, unique_key text DEFAULT NULL, max_attempts integer DEFAULT NULL,
    timeout interval DEFAULT NULL, unique_scope text DEFAULT NULL, on_conflict text DEFAULT NULL,
    idempotency_key text DEFAULT NULL, idempotency_retention interval DEFAULT NULL, tags text[] DEFAULT NULL,
    after bigint[] DEFAULT NULL, after_any bigint[] DEFAULT NULL, on_failure text DEFAULT 'cancel',
    concurrency_key text DEFAULT NULL, unique_by text[] DEFAULT NULL, debounce_max interval DEFAULT NULL,
    kill_after interval DEFAULT NULL, backoff text DEFAULT NULL, backoff_base interval DEFAULT NULL,
    backoff_max interval DEFAULT NULL, backoff_jitter double precision DEFAULT NULL, expires interval DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL, keep interval DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    got record;
BEGIN
    IF unique_by IS NOT NULL OR strpos(unique_key, '{') > 0 OR coalesce(kind, 'task') = 'task' AND pgsched.has_options(task) THEN
        SELECT k.unique_key, k.unique_scope, k.on_conflict, k.debounce_max, k.delay, k.idempotency_retention
        INTO unique_key, unique_scope, on_conflict, debounce_max, delay, idempotency_retention
        FROM pgsched.resolve_key(task, args, kind, unique_by, unique_key, unique_scope, on_conflict, debounce_max, delay,
                                 idempotency_retention) k;
    END IF;
    got := pgsched.make_run(task, args, kind, queue, priority, delay, at, unique_key,
        max_attempts, timeout, unique_scope, on_conflict, idempotency_key, idempotency_retention, tags, after, after_any,
        on_failure, concurrency_key, debounce_max, kill_after, backoff, backoff_base, backoff_max, backoff_jitter,
        expires, expires_at, keep);
    IF got.how = 'rejected' THEN
        RAISE EXCEPTION USING ERRCODE = 'unique_violation', COLUMN = 'unique_key', TABLE = 'runs', SCHEMA = 'pgsched',
            MESSAGE = format('unique_key: run %s has "%s" already', got.id, left(unique_key, 60));
    END IF;
    RETURN got.id;
END $$;

COMMENT ON FUNCTION pgsched.enqueue IS
    'Makes a run; returns its id, or that of the run which has the key already. Call it with named arguments: docs/how-to/enqueue.md.';
COMMENT ON FUNCTION pgsched.enqueue_result IS 'As enqueue; returns id and how: created, existing, replaced, repeated, rejected.';
