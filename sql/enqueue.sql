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


-- name: enqueue_keyed
-- make one ad-hoc run of a registered task that has a key or waits for others, or find the run with that key.
-- params: those of `enqueue`, and unique_key text, unique_scope text, on_conflict text, idempotency_key text,
--         idempotency_retention interval, after bigint[], after_any bigint[], on_failure text, fleet uuid (the database
--         must belong to it, because a key has a meaning in one database only; null: any)
-- returns: (id of the run; how: created, existing, replaced, rejected, repeated; nothing; fleet uuid: the database's)
-- locks: the new row, or the row of the run whose payload is replaced. Waits for a transaction that is inserting the
--        same key.
SELECT id, how, CASE WHEN %(trace)s::text IS NOT NULL THEN pgsched.carry_trace(id, how, %(trace)s::text::jsonb)::text END AS traced,
    fleet
FROM pgsched.assert_fleet(%(fleet)s::uuid) AS fleet, pgsched.enqueue_result(
    task => %(task)s::text, args => %(args)s::text::jsonb, queue => %(queue)s::text, priority => %(priority)s::integer,
    max_attempts => %(max_attempts)s::integer, timeout => %(timeout)s::interval, at => %(at)s::timestamptz,
    delay => %(delay)s::interval, tags => %(tags)s::text[], unique_key => %(unique_key)s::text,
    unique_scope => coalesce(%(unique_scope)s::text, 'while_active'), on_conflict => %(on_conflict)s::text,
    idempotency_key => %(idempotency_key)s::text, idempotency_retention => %(idempotency_retention)s::interval,
    after => %(after)s::bigint[], after_any => %(after_any)s::bigint[],
    on_failure => coalesce(%(on_failure)s::text, 'cancel'), concurrency_key => %(concurrency_key)s::text)


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
    pg_catalog.has_table_privilege('pgsched.runs', 'INSERT')
        AND pg_catalog.num_nonnulls(%(at)s::timestamptz, %(delay)s::interval,
            coalesce(%(concurrency_key)s::text, o.concurrency_key)) = 0 AS may_check
FROM pgsched.task_options(%(task)s::text) AS o


-- name: enqueue_plain
-- check whether a trigger can skip the checks of these runs. Asked in the transaction that makes them.
-- params: task text, and as `enqueue_at` has decided them: queue, priority, max_attempts, timeout
-- returns: plain boolean
-- locks: the table lock of a writer on runs
SELECT pgsched.are_plain(%(task)s::text, %(queue)s::text, %(priority)s::text::smallint, %(max_attempts)s::text::integer,
    %(timeout)s::text::interval) AS plain


-- name: enqueue_rows
-- make a run for each of `args`, if row security forbids COPY.
-- params: those of `enqueue`, but args text[]: JSON texts; trace text: a JSON object, or null
-- returns: nothing
-- locks: none except the new rows'
INSERT INTO pgsched.runs (task, args, queue, priority, max_attempts, timeout, available_at, tags, concurrency_key,
    options)
SELECT %(task)s::text, a.args::jsonb, %(queue)s::text, %(priority)s::smallint, %(max_attempts)s::integer,
    %(timeout)s::interval,
    coalesce(%(at)s::timestamptz, pg_catalog.clock_timestamp() + %(delay)s::interval, pg_catalog.clock_timestamp()),
    %(tags)s::text[], %(concurrency_key)s::text,
    CASE WHEN %(trace)s::text IS NOT NULL THEN pg_catalog.jsonb_build_object('trace', %(trace)s::text::jsonb) END
FROM pg_catalog.unnest(%(args)s::text[]) AS a(args)


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
