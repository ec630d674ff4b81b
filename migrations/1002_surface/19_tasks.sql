-- Arguments can be checked where they are made: against the JSON Schema that the newest release of the task has registered.

-- Checks a value against a JSON Schema (https://json-schema.org/draft/2020-12). Returns null where it fits, the problem
-- where it does not, and "not checked: ..." where the schema has a keyword that is not known here. `root` is the whole
-- schema, for its $defs; `levels` bounds the depth, and `steps` how many schemas are compared with a value: with
-- alternatives within alternatives they are exponentially many. All keys of an object, and all items of an array, are paid
-- before the first is looked at, because reading them is work as well. It returns how many steps are left.
CREATE FUNCTION pgsched.json_misfit(schema jsonb, value jsonb, path text, root jsonb, levels integer, INOUT steps integer,
    OUT misfit text)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    too_much CONSTANT text := 'not checked: there is too much of it';
    remarks CONSTANT text[] := ARRAY['title', 'description', 'default', 'examples', 'format', '$defs', 'contentEncoding'];
    known CONSTANT text[] := ARRAY['$ref', 'type', 'enum', 'const', 'anyOf', 'required', 'properties', 'items',
        'additionalProperties'];
    sub text;
    unchecked text;
    doubt text;  -- what could not be checked of an alternative
    is_type text := CASE WHEN jsonb_typeof(value) = 'number' AND value::numeric = trunc(value::numeric) THEN 'integer'
                         ELSE jsonb_typeof(value) END;
    types jsonb;
    one record;
BEGIN
    steps := steps - 1;
    IF jsonb_typeof(schema) = 'boolean' THEN
        misfit := CASE WHEN NOT schema::boolean THEN format('%s: no value is allowed', path) END;
        RETURN;
    ELSIF steps < 0 THEN
        misfit := too_much;
        RETURN;
    ELSIF jsonb_typeof(schema) <> 'object' OR levels <= 0 THEN
        misfit := format('not checked: %s', path);
        RETURN;
    END IF;
    SELECT format('not checked: %s of %s', k.name, path) INTO unchecked FROM jsonb_object_keys(schema) k(name)
    WHERE k.name <> ALL (remarks || known) LIMIT 1;
    IF schema ? '$ref' THEN
        IF NOT coalesce(root -> '$defs' ? substr(schema ->> '$ref', 9), false) OR NOT starts_with(schema ->> '$ref', '#/$defs/') THEN
            misfit := format('not checked: $ref of %s', path);
            RETURN;
        END IF;
        SELECT m.steps, m.misfit INTO steps, sub
        FROM pgsched.json_misfit(root -> '$defs' -> substr(schema ->> '$ref', 9), value, path, root, levels - 1, steps) m;
        IF sub IS NOT NULL AND NOT starts_with(sub, 'not checked: ') THEN
            misfit := sub;
            RETURN;
        END IF;
        unchecked := coalesce(unchecked, sub);
    END IF;
    IF schema ? 'type' THEN
        types := CASE jsonb_typeof(schema -> 'type') WHEN 'array' THEN schema -> 'type' ELSE jsonb_build_array(schema -> 'type') END;
        IF NOT (types ? is_type OR is_type = 'integer' AND types ? 'number') THEN
            misfit := format('%s: expected %s, got %s', path,
                (SELECT string_agg(t.name, ' or ') FROM jsonb_array_elements_text(types) t(name)), is_type);
            RETURN;
        END IF;
    END IF;
    IF schema ? 'const' AND schema -> 'const' <> value
        OR jsonb_typeof(schema -> 'enum') = 'array' AND NOT schema -> 'enum' @> jsonb_build_array(value) THEN
        misfit := format('%s: expected one of %s', path, left(coalesce(schema ->> 'enum', schema ->> 'const'), 200));
        RETURN;
    END IF;
    IF jsonb_typeof(schema -> 'anyOf') = 'array' THEN
        -- of several problems, that of the first alternative other than "null"
        FOR one IN SELECT a.value FROM jsonb_array_elements(schema -> 'anyOf') WITH ORDINALITY a(value, place)
            ORDER BY a.value ->> 'type' = 'null', a.place LOOP
            IF steps < 0 THEN
                doubt := coalesce(doubt, too_much);
                EXIT;
            END IF;
            SELECT m.steps, m.misfit INTO steps, sub FROM pgsched.json_misfit(one.value, value, path, root, levels - 1, steps) m;
            IF sub IS NULL THEN
                misfit := NULL;
                doubt := NULL;
                EXIT;
            ELSIF starts_with(sub, 'not checked: ') THEN
                doubt := least(doubt, sub);
            ELSE
                misfit := coalesce(misfit, sub);
            END IF;
        END LOOP;
        IF misfit IS NOT NULL AND doubt IS NULL THEN
            RETURN;
        END IF;
        misfit := NULL;
        unchecked := coalesce(unchecked, doubt);
    END IF;
    IF is_type = 'object' THEN
        SELECT format('%s is missing', k.name) INTO sub
        FROM jsonb_array_elements_text(CASE jsonb_typeof(schema -> 'required') WHEN 'array' THEN schema -> 'required' ELSE '[]' END) k(name)
        WHERE NOT value ? k.name LIMIT 1;
        IF sub IS NOT NULL THEN
            misfit := ltrim(format('%s.%s', path, sub), '.');
            RETURN;
        END IF;
    END IF;
    IF is_type = 'object' AND schema ?| '{properties,additionalProperties}' THEN
        steps := steps - (SELECT count(*)::integer FROM jsonb_object_keys(value));
    ELSIF is_type = 'array' AND schema ? 'items' THEN
        steps := steps - jsonb_array_length(value);
    END IF;
    IF steps < 0 THEN
        unchecked := coalesce(unchecked, too_much);
    ELSIF is_type = 'object' AND schema ?| '{properties,additionalProperties}' THEN
        FOR one IN SELECT key, v.value FROM jsonb_each(value) v LOOP
            sub := NULL;
            IF coalesce(schema -> 'properties' ? one.key, false) THEN
                SELECT m.steps, m.misfit INTO steps, sub
                FROM pgsched.json_misfit(schema -> 'properties' -> one.key, one.value,
                                         ltrim(format('%s.%s', path, one.key), '.'), root, levels - 1, steps + 1) m;
            ELSIF schema -> 'additionalProperties' = 'false' THEN
                sub := ltrim(format('%s.%s: there is no such argument', path, one.key), '.');
            ELSIF schema ? 'additionalProperties' THEN
                SELECT m.steps, m.misfit INTO steps, sub
                FROM pgsched.json_misfit(schema -> 'additionalProperties', one.value,
                                         format('%s[%s]', path, to_jsonb(one.key)), root, levels - 1, steps + 1) m;
            END IF;
            IF sub IS NOT NULL AND NOT starts_with(sub, 'not checked: ') THEN
                misfit := sub;
                RETURN;
            END IF;
            unchecked := coalesce(unchecked, sub);
            EXIT WHEN steps < 0;
        END LOOP;
    ELSIF is_type = 'array' AND schema ? 'items' THEN
        FOR one IN SELECT e.value, e.place FROM jsonb_array_elements(value) WITH ORDINALITY e(value, place) LOOP
            SELECT m.steps, m.misfit INTO steps, sub
            FROM pgsched.json_misfit(schema -> 'items', one.value, format('%s[%s]', path, one.place - 1), root, levels - 1, steps + 1) m;
            IF sub IS NOT NULL AND NOT starts_with(sub, 'not checked: ') THEN
                misfit := sub;
                RETURN;
            END IF;
            unchecked := coalesce(unchecked, sub);
            EXIT WHEN steps < 0;
        END LOOP;
    END IF;
    misfit := unchecked;
END $$;

-- Whether these arguments fit a task, by the schema that its newest release has registered. `fits` is null where that
-- is not known; `problem` gives the reason. A schema has no order of parameters:
-- arguments by position are not checked. With its owner's rights: a role that may make a run of a task may call it.
CREATE FUNCTION pgsched.check_args(task text, args jsonb, OUT fits boolean, OUT problem text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    schema jsonb := (SELECT t.schema FROM pgsched.tasks t WHERE t.task = check_args.task
                     ORDER BY t.first_seen_at DESC, t.app LIMIT 1);
BEGIN
    problem := CASE
        WHEN coalesce(schema, '{}') = '{}' THEN format('not checked: no worker has registered the arguments of task "%s"%s', left(task, 200),
            CASE WHEN schema IS NULL THEN pgsched.did_you_mean(task, pgsched.offered_tasks()) END)
        WHEN jsonb_typeof(args) = 'array' THEN 'not checked: arguments by position'
        ELSE (SELECT m.misfit FROM pgsched.json_misfit(schema, coalesce(args, '{}'), '', schema, 60, 50000) m) END;
    fits := CASE WHEN problem IS NULL THEN true WHEN NOT starts_with(problem, 'not checked: ') THEN false END;
    problem := CASE WHEN starts_with(problem, ': ') THEN 'args' || problem ELSE problem END;
END $$;

COMMENT ON FUNCTION pgsched.check_args IS
    'Whether these arguments fit the task: fits is null where that cannot be said; problem gives the reason.';

-- What a task says of its runs, beyond queue, priority, max_attempts, timeout, tags and key: back-off, kill_after, expires,
-- keep; its unique keys; and a limit of its own (40_limits.sql).

-- What is wrong with the options of a task. They are put into rows that others make, also the leader: none may refuse those.
CREATE OR REPLACE FUNCTION pgsched.task_options_error(options jsonb) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tags text[];
BEGIN
    IF jsonb_typeof(options) IS DISTINCT FROM 'object' THEN
        RETURN 'options: expected an object';
    END IF;
    tags := ARRAY(SELECT jsonb_array_elements_text(nullif(options -> 'tags', 'null')));
    RETURN coalesce(
        CASE WHEN options ->> 'queue' IS NOT NULL THEN pgsched.bad_text('queue', options ->> 'queue', 100) END,
        CASE WHEN options ->> 'priority' IS NOT NULL
             THEN pgsched.out_of_range('priority', (options ->> 'priority')::integer, 0, 9) END,
        CASE WHEN options ->> 'max_attempts' IS NOT NULL
             THEN pgsched.out_of_range('max_attempts', (options ->> 'max_attempts')::integer, 1, 1000) END,
        pgsched.bad_interval('timeout', make_interval(secs => (options ->> 'timeout')::float8), '1 millisecond'),
        pgsched.bad_tags(tags),
        CASE WHEN options ->> 'concurrency_key' IS NOT NULL
             THEN coalesce(pgsched.bad_text('concurrency_key', options ->> 'concurrency_key', 200),
                           CASE WHEN options ->> 'concurrency_key' ~ '^job(:|$)'
                                THEN 'concurrency_key: "job" is for the limits of jobs' END) END,
        pgsched.bad_interval('kill_after', make_interval(secs => (options ->> 'kill_after')::float8), '0'),
        CASE WHEN options ->> 'backoff' IS NOT NULL
             THEN pgsched.not_one_of('backoff', options ->> 'backoff', ARRAY['exponential', 'fixed', 'linear']) END,
        pgsched.bad_interval('backoff_base', make_interval(secs => (options ->> 'backoff_base')::float8), '0'),
        pgsched.bad_interval('backoff_max', make_interval(secs => (options ->> 'backoff_max')::float8), '0'),
        CASE WHEN options ->> 'backoff_jitter' IS NOT NULL
             THEN pgsched.out_of_range('backoff_jitter', (options ->> 'backoff_jitter')::numeric, 0, 1) END,
        pgsched.bad_interval('delay', make_interval(secs => (options ->> 'delay')::float8), '0'),
        pgsched.bad_interval('idempotency_retention',
            make_interval(secs => (options ->> 'idempotency_retention')::float8), '1 second'),
        pgsched.bad_interval('expires', make_interval(secs => (options ->> 'expires')::float8), '1 millisecond'),
        pgsched.bad_interval('keep', make_interval(secs => (options ->> 'keep')::float8), '0'),
        CASE WHEN options ->> 'unique_key' IS NOT NULL
             THEN pgsched.bad_text('unique_key', options ->> 'unique_key', 500) END,
        CASE WHEN coalesce(options -> 'unique_by', 'null') <> 'null' AND jsonb_typeof(options -> 'unique_by') <> 'array'
             THEN 'unique_by: expected a list of the names of arguments' END,
        CASE WHEN options ->> 'unique_scope' IS NOT NULL
             THEN pgsched.unique_scope_error(options ->> 'unique_scope') END,
        CASE WHEN options ->> 'on_conflict' IS NOT NULL
             THEN pgsched.not_one_of('on_conflict', options ->> 'on_conflict',
                                     ARRAY['return', 'reject', 'replace', 'keep_time', 'merge']) END,
        pgsched.bad_interval('debounce_max', make_interval(secs => (options ->> 'debounce_max')::float8), '0'),
        CASE WHEN options ->> 'concurrency' IS NOT NULL
             THEN pgsched.out_of_range('concurrency', (options ->> 'concurrency')::integer, 0, 1000000) END,
        CASE WHEN options ->> 'rate' IS NOT NULL
             THEN coalesce(pgsched.out_of_range('rate', (options ->> 'rate')::integer, 1, 1000000000),
                           CASE WHEN options ->> 'rate_period' IS NULL THEN 'rate_period: must not be null' END) END,
        CASE WHEN make_interval(secs => (options ->> 'rate_period')::float8) NOT BETWEEN '1 millisecond' AND '31 days'
             THEN 'rate_period: is not between 1 millisecond and 31 days' END);
EXCEPTION WHEN data_exception THEN
    RETURN format('options: %s', SQLERRM);
END $$;

-- The role that owns an app, if that is neither the caller nor a role that the caller is a member of. An owner that was
-- dropped is none: its app is free for the next login.
CREATE FUNCTION pgsched.other_owner(app text) RETURNS name
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.owner FROM pgsched.tasks t WHERE t.app = other_owner.app AND t.owner <> pgsched.caller() AND EXISTS (
        SELECT FROM pg_roles r WHERE r.rolname = t.owner AND NOT pg_has_role(pgsched.caller(), r.oid, 'MEMBER')) LIMIT 1
$$;

-- Registers the tasks of an app: an array of {"task", "release", "options", "schema"}. What is known already is left as it
-- is, and locked by nobody. Returns null, or the role that owns the app, if it is not the caller's: then nothing is
-- registered. With its owner's rights: nobody else writes the table.
CREATE OR REPLACE FUNCTION pgsched.register_tasks(app text, given jsonb) RETURNS name
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text;
    of_other name := pgsched.other_owner(app);
    added text[];
BEGIN
    IF of_other IS NOT NULL THEN
        RETURN of_other;
    END IF;
    -- locked before the table is looked at: of two at once the second must see what the first has registered, and set its bits
    IF NOT EXISTS (
        SELECT FROM jsonb_to_recordset(given) AS g(task text, release text)
        WHERE NOT EXISTS (SELECT FROM pgsched.tasks t
                          WHERE (t.task, t.app, t.release) = (g.task, register_tasks.app, g.release))
    ) THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.take_turn('tasks');
    SELECT format('task "%s": %s', left(g.task, 100), e) INTO problem
    FROM jsonb_to_recordset(given) AS g(task text, options jsonb),
        coalesce(pgsched.bad_text('task', g.task, 200), pgsched.task_options_error(coalesce(g.options, '{}')),
            CASE WHEN NOT pgsched.is_own_key(g.options ->> 'concurrency_key', g.task)
                 THEN 'concurrency_key: "task" is for the limits of tasks' END) AS e
    WHERE e IS NOT NULL LIMIT 1;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'tasks');
    END IF;
    PERFORM setval('pgsched.tasks_with_options', coalesce(pg_sequence_last_value('pgsched.tasks_with_options'), 0) | b.bits)
    FROM (SELECT bit_or(pgsched.queue_bit(g.task)) AS bits FROM jsonb_to_recordset(given) AS g(task text, options jsonb)
          WHERE g.options <> '{}') b WHERE b.bits IS NOT NULL;
    WITH made AS (
        INSERT INTO pgsched.tasks (app, task, release, options, schema, owner)
        SELECT register_tasks.app, g.task, g.release, coalesce(g.options, '{}'), coalesce(g.schema, '{}'), pgsched.caller()
        FROM jsonb_to_recordset(given) AS g(task text, release text, options jsonb, schema jsonb)
        ON CONFLICT DO NOTHING RETURNING task
    )
    SELECT array_agg(m.task) INTO added FROM made m;
    DELETE FROM pgsched.tasks t USING (
        SELECT o.task, o.release, row_number() OVER (PARTITION BY o.task ORDER BY o.first_seen_at DESC) AS place
        FROM pgsched.tasks o WHERE o.app = register_tasks.app AND o.task = ANY (added)
    ) old
    WHERE old.place > pgsched.releases_kept() AND (t.task, t.app, t.release) = (old.task, register_tasks.app, old.release);
    RETURN NULL;
END $$;

-- The options of a task: those that were registered last; no row where it is not known. `more` holds those that few tasks
-- have, without those of a call (task_keys); null: none. With its owner's rights: whoever may make a run may make one of this task.
DROP FUNCTION pgsched.task_options(text);
CREATE FUNCTION pgsched.task_options(task text, OUT queue text, OUT priority smallint, OUT max_attempts integer,
    OUT timeout interval, OUT tags text[], OUT concurrency_key text,
    OUT more jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    options jsonb := (SELECT t.options FROM pgsched.tasks t WHERE t.task = task_options.task
                      ORDER BY t.first_seen_at DESC, t.app LIMIT 1);
BEGIN
    queue := options ->> 'queue';
    priority := (options ->> 'priority')::smallint;
    max_attempts := (options ->> 'max_attempts')::integer;
    timeout := make_interval(secs => (options ->> 'timeout')::float8);
    tags := CASE WHEN options -> 'tags' IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(options -> 'tags')) END;
    concurrency_key := options ->> 'concurrency_key';
    more := nullif(options - '{queue,priority,max_attempts,timeout,tags,concurrency_key,delay,idempotency_retention}'::text[],
                   '{}');
END $$;

-- What a task says of the keys and the delay of its runs, by the release that was registered last, and the defaults of its
-- arguments; nulls where it says nothing. The arguments are read where a key is made of them: where the task declares one,
-- or `needed` says so. With its owner's rights, as task_options.
CREATE FUNCTION pgsched.task_keys(task text, needed boolean, OUT unique_key text, OUT unique_by text[], OUT unique_scope text,
    OUT on_conflict text, OUT debounce_max interval, OUT delay interval, OUT idempotency_retention interval,
    OUT parameters text[], OUT defaults jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    options jsonb;
    properties jsonb;
BEGIN
    SELECT t.options, CASE WHEN (task_keys.needed OR t.options ?| '{unique_key,unique_by}')
            AND jsonb_typeof(t.schema -> 'properties') = 'object' THEN t.schema -> 'properties' END
    INTO options, properties FROM pgsched.tasks t
    WHERE t.task = task_keys.task ORDER BY t.first_seen_at DESC, t.app LIMIT 1;
    unique_key := options ->> 'unique_key';
    unique_by := CASE WHEN coalesce(options -> 'unique_by', 'null') <> 'null'
                      THEN ARRAY(SELECT jsonb_array_elements_text(options -> 'unique_by')) END;
    unique_scope := options ->> 'unique_scope';
    on_conflict := options ->> 'on_conflict';
    debounce_max := make_interval(secs => (options ->> 'debounce_max')::float8);
    delay := make_interval(secs => (options ->> 'delay')::float8);
    idempotency_retention := make_interval(secs => (options ->> 'idempotency_retention')::float8);
    parameters := ARRAY(SELECT jsonb_object_keys(properties));
    defaults := (SELECT jsonb_object_agg(p.key, p.value -> 'default') FROM jsonb_each(properties) p
                 WHERE jsonb_typeof(p.value) = 'object' AND p.value ? 'default');
END $$;

COMMENT ON COLUMN pgsched.tasks.options IS
    'What its runs take unless the call or the job says otherwise, by the names of the options; durations in seconds.';
COMMENT ON FUNCTION pgsched.task_options IS 'What the newest release of a task says of its runs; nulls where it says nothing.';
