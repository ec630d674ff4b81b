-- Enqueues: making runs.
-- Each block is one statement: its purpose, params, returns and locks, then its text.
-- These statements are also sent on the application's connections, with any search path. So every function is named
-- with its schema, and all text that is read or written is the same under every setting.


-- name: enqueue
-- make one ad-hoc run of a registered task.
-- params: task text, args text (JSON), queue text, priority smallint, max_attempts integer, timeout interval, at
--         timestamptz or delay interval (from now), tags text[], concurrency_key text, trace text: a JSON object with
--         traceparent and possibly tracestate; null takes the default
-- returns: (id of the run; how: created)
-- locks: none except the new row's
INSERT INTO pgsched.runs (task, args, queue, priority, max_attempts, timeout, available_at, tags, concurrency_key, options)
VALUES (%(task)s::text, %(args)s::text::jsonb, %(queue)s::text, %(priority)s::smallint, %(max_attempts)s::integer,
        %(timeout)s::interval,
        coalesce(%(at)s::timestamptz, pg_catalog.clock_timestamp() + %(delay)s::interval, pg_catalog.clock_timestamp()),
        %(tags)s::text[], %(concurrency_key)s::text,
        CASE WHEN %(trace)s::text IS NOT NULL THEN pg_catalog.jsonb_build_object('trace', %(trace)s::text::jsonb) END)
RETURNING id, 'created' AS how


-- name: enqueue_full
-- make a run of a registered task with any of its options for each of `args`, or find the run with its key.
-- params: those of `enqueue`, but args text[]: JSON texts; idempotency_keys text[]: of each, or null; and unique_key text (as it is), unique_template text (a key
--         with {names} of arguments), unique_by text[] (names of arguments; '{*}': all), defaults text (JSON: the
--         defaults of arguments that are not given), unique_scope text, on_conflict text, debounce_max interval, idempotency_key text,
--         idempotency_retention interval, after bigint[], after_any bigint[], on_failure text, kill_after interval,
--         backoff text, backoff_base interval, backoff_max interval, backoff_jitter float8, expires interval (after the
--         run is due), expires_at timestamptz, keep interval, fleet uuid (the database must belong to it, because a key
--         has a meaning in one database only; null: any)
-- returns: (id of the run; how: created, existing, replaced, rejected, repeated; nothing; fleet uuid: the database's), one
--          row for each of `args`, in their order
-- locks: the new row, or the row of the run whose payload is replaced. Waits for a transaction that is inserting the
--        same key.
SELECT id, how, CASE WHEN %(trace)s::text IS NOT NULL THEN pgsched.carry_trace(id, how, %(trace)s::text::jsonb)::text END AS traced,
    fleet
FROM pgsched.assert_fleet(%(fleet)s::uuid) AS fleet,
    pg_catalog.unnest(%(args)s::text[]) WITH ORDINALITY AS a(args, n) CROSS JOIN LATERAL pgsched.make_run(
    task => %(task)s::text, args => a.args::jsonb, kind => 'task',
    queue => %(queue)s::text, priority => %(priority)s::integer, delay => %(delay)s::interval, at => %(at)s::timestamptz,
    unique_key => CASE
        WHEN %(unique_key)s::text IS NOT NULL THEN %(unique_key)s::text
        WHEN %(unique_template)s::text IS NOT NULL
            THEN pgsched.template_key(%(unique_template)s::text, a.args::jsonb, %(defaults)s::text::jsonb)
        WHEN %(unique_by)s::text[] IS NOT NULL
            THEN pgsched.arguments_key(%(task)s::text, a.args::jsonb, %(unique_by)s::text[], %(defaults)s::text::jsonb) END,
    max_attempts => %(max_attempts)s::integer, timeout => %(timeout)s::interval, unique_scope => %(unique_scope)s::text,
    on_conflict => %(on_conflict)s::text,
    idempotency_key => coalesce((%(idempotency_keys)s::text[])[a.n::integer], %(idempotency_key)s::text),
    idempotency_retention => %(idempotency_retention)s::interval, tags => %(tags)s::text[], after => %(after)s::bigint[],
    after_any => %(after_any)s::bigint[], on_failure => %(on_failure)s::text, concurrency_key => %(concurrency_key)s::text,
    debounce_max => %(debounce_max)s::interval, kill_after => %(kill_after)s::interval, backoff => %(backoff)s::text,
    backoff_base => %(backoff_base)s::interval, backoff_max => %(backoff_max)s::interval,
    backoff_jitter => %(backoff_jitter)s::float8, expires => %(expires)s::interval,
    expires_at => %(expires_at)s::timestamptz, keep => %(keep)s::interval)
ORDER BY a.n


-- name: enqueue_take_keys
-- take the idempotency keys of many runs before the runs are made, in the order of `keys`. Asked in the transaction that
-- makes them.
-- params: keys text[]; task text, idempotency_retention interval: as `enqueue_full`
-- returns: how many of them stand for a run already
-- locks: the keys. Waits for a transaction that is taking one of them.
SELECT pg_catalog.count(t.run_id) AS used
FROM pg_catalog.unnest(%(keys)s::text[]) AS k CROSS JOIN LATERAL pgsched.take_key('idempotency', k,
    %(task)s::text, pg_catalog.clock_timestamp() + coalesce(%(idempotency_retention)s::interval, '24 hours'::interval)) AS t


-- name: enqueue_named
-- make a run of a task whose code is not here with any of its options, or find the run with its key. The keys that its
-- newest release declares hold, as in pgsched.enqueue.
-- params: those of `enqueue_full` without unique_template and defaults
-- returns: as `enqueue_full`
-- locks: as `enqueue_full`
SELECT id, how, CASE WHEN %(trace)s::text IS NOT NULL THEN pgsched.carry_trace(id, how, %(trace)s::text::jsonb)::text END AS traced,
    fleet
FROM pgsched.assert_fleet(%(fleet)s::uuid) AS fleet,
    pg_catalog.unnest(%(args)s::text[]) WITH ORDINALITY AS a(args, n) CROSS JOIN LATERAL pgsched.enqueue_result(
    task => %(task)s::text, args => a.args::jsonb, kind => 'task',
    queue => %(queue)s::text, priority => %(priority)s::integer, delay => %(delay)s::interval, at => %(at)s::timestamptz,
    unique_key => %(unique_key)s::text, unique_by => %(unique_by)s::text[],
    max_attempts => %(max_attempts)s::integer, timeout => %(timeout)s::interval, unique_scope => %(unique_scope)s::text,
    on_conflict => %(on_conflict)s::text, idempotency_key => %(idempotency_key)s::text,
    idempotency_retention => %(idempotency_retention)s::interval, tags => %(tags)s::text[], after => %(after)s::bigint[],
    after_any => %(after_any)s::bigint[], on_failure => %(on_failure)s::text, concurrency_key => %(concurrency_key)s::text,
    debounce_max => %(debounce_max)s::interval, kill_after => %(kill_after)s::interval, backoff => %(backoff)s::text,
    backoff_base => %(backoff_base)s::interval, backoff_max => %(backoff_max)s::interval,
    backoff_jitter => %(backoff_jitter)s::float8, expires => %(expires)s::interval,
    expires_at => %(expires_at)s::timestamptz, keep => %(keep)s::interval)
ORDER BY a.n


-- name: enqueue_undeclared
-- make one run of a task whose code is not here, as `enqueue` does, unless the task's newest release declares a key or a
-- delay: `enqueue_named` takes those.
-- params: those of `enqueue`
-- returns: (id of the run; how: created); no row where the task declares one, and then no run is made
-- locks: none except the new row's
INSERT INTO pgsched.runs (task, args, queue, priority, max_attempts, timeout, available_at, tags, concurrency_key, options)
SELECT %(task)s::text, %(args)s::text::jsonb, %(queue)s::text, %(priority)s::smallint, %(max_attempts)s::integer,
    %(timeout)s::interval,
    coalesce(%(at)s::timestamptz, pg_catalog.clock_timestamp() + %(delay)s::interval, pg_catalog.clock_timestamp()),
    %(tags)s::text[], %(concurrency_key)s::text,
    CASE WHEN %(trace)s::text IS NOT NULL THEN pg_catalog.jsonb_build_object('trace', %(trace)s::text::jsonb) END
WHERE CASE WHEN pgsched.has_options(%(task)s::text) THEN NOT EXISTS (
    SELECT FROM pgsched.task_keys(%(task)s::text, false) AS k
    WHERE pg_catalog.num_nonnulls(k.unique_key, k.unique_by, k.delay) > 0) ELSE true END
RETURNING id, 'created' AS how


-- name: enqueue_at
-- decide the params of `enqueue` for a COPY of many runs, as text; what is not given is taken from the task.
-- params: those of `enqueue` without args and trace
-- returns: (available_at text, null: now; timeout, tags, queue, priority, max_attempts, concurrency_key: text or null;
--          by_rows boolean: row security forbids COPY; may_check boolean: enqueue_plain may decide that the trigger can
--          skip its checks)
-- locks: none
SELECT pg_catalog.to_jsonb(coalesce(%(at)s::timestamptz, pg_catalog.clock_timestamp() + %(delay)s::interval)) #>> '{}'::text[]
        AS available_at,  -- as text, a time zone's name for people may be read as another one's
    coalesce(%(timeout)s::interval, o.timeout)::text AS timeout, coalesce(%(tags)s::text[], o.tags)::text AS tags,
    coalesce(%(queue)s::text, o.queue, 'default') AS queue, coalesce(%(priority)s::smallint, o.priority, 5)::text AS priority,
    coalesce(%(max_attempts)s::integer, o.max_attempts, 3)::text AS max_attempts,
    coalesce(%(concurrency_key)s::text, o.concurrency_key) AS concurrency_key,
    pg_catalog.row_security_active('pgsched.runs') AS by_rows,
    o.more IS NULL AND pg_catalog.has_table_privilege('pgsched.runs', 'INSERT')
        AND pg_catalog.num_nonnulls(%(at)s::timestamptz, %(delay)s::interval,
            coalesce(%(concurrency_key)s::text, o.concurrency_key)) = 0 AS may_check
FROM pgsched.task_options(%(task)s::text) AS o


-- name: enqueue_at_more
-- decide further columns of a COPY of many runs, as text. Asked only where one of them is given.
-- params: at timestamptz, delay interval, kill_after interval, backoff text, backoff_base interval, backoff_max interval,
--         backoff_jitter float8, expires interval (after the runs are due), expires_at timestamptz, keep interval
-- returns: (kill_after, backoff, backoff_base, backoff_max, backoff_jitter, expires_at, keep: text or null)
-- locks: none
SELECT %(kill_after)s::interval::text AS kill_after, %(backoff)s::text AS backoff,
    %(backoff_base)s::interval::text AS backoff_base, %(backoff_max)s::interval::text AS backoff_max,
    %(backoff_jitter)s::float8::text AS backoff_jitter, %(keep)s::interval::text AS keep,
    pg_catalog.to_jsonb(coalesce(%(expires_at)s::timestamptz, coalesce(%(at)s::timestamptz,
        pg_catalog.clock_timestamp() + %(delay)s::interval, pg_catalog.clock_timestamp()) + %(expires)s::interval))
        #>> '{}'::text[] AS expires_at


-- name: enqueue_plain
-- check whether a trigger can skip the checks of these runs. Asked in the transaction that makes them.
-- params: task text, and as `enqueue_at` has decided them: queue, priority, max_attempts, timeout
-- returns: plain boolean
-- locks: the table lock of a writer on runs
SELECT pgsched.are_plain(%(task)s::text, %(queue)s::text, %(priority)s::text::smallint, %(max_attempts)s::text::integer,
    %(timeout)s::text::interval) AS plain


-- name: enqueue_rows
-- make a run for each of `args`, if row security forbids COPY, or if the ids of the runs are wanted.
-- params: those of `enqueue`, but args text[]: JSON texts; trace text: a JSON object, or null; and those of
--         `enqueue_at_more`
-- returns: id of each, in the order of `args`
-- locks: none except the new rows'
INSERT INTO pgsched.runs (task, args, queue, priority, max_attempts, timeout, available_at, tags, concurrency_key,
    options, kill_after, backoff, backoff_base, backoff_max, backoff_jitter, keep, expires_at)
SELECT %(task)s::text, a.args::jsonb, %(queue)s::text, %(priority)s::smallint, %(max_attempts)s::integer,
    %(timeout)s::interval,
    coalesce(%(at)s::timestamptz, pg_catalog.clock_timestamp() + %(delay)s::interval, pg_catalog.clock_timestamp()),
    %(tags)s::text[], %(concurrency_key)s::text,
    CASE WHEN %(trace)s::text IS NOT NULL THEN pg_catalog.jsonb_build_object('trace', %(trace)s::text::jsonb) END,
    %(kill_after)s::interval, %(backoff)s::text, %(backoff_base)s::interval, %(backoff_max)s::interval,
    %(backoff_jitter)s::float8, %(keep)s::interval,
    coalesce(%(expires_at)s::timestamptz, coalesce(%(at)s::timestamptz,
        pg_catalog.clock_timestamp() + %(delay)s::interval, pg_catalog.clock_timestamp()) + %(expires)s::interval)
FROM pg_catalog.unnest(%(args)s::text[]) AS a(args)
RETURNING id


-- name: enqueue_told
-- notify sleeping workers of runs whose checks the trigger has skipped, in the transaction that made them.
-- params: queue text
-- returns: nothing of interest
-- locks: none
SELECT pgsched.tell_workers(%(queue)s::text) WHERE pgsched.may_be_asleep()


-- name: first_result
-- return the outcome of the run that an idempotency key stands for.
-- params: key text
-- returns: (run_id, state, result, error, finished_at); no row once the key has expired
-- locks: none
SELECT run_id, state, result, error, finished_at FROM pgsched.first_result(%(key)s::text)
