-- enqueue_keyed: make one ad-hoc run of a Python task that has a key or waits for others, or find the one with that key.
-- params: as enqueue, and unique_key text, unique_scope text, on_conflict text, idempotency_key text,
--         idempotency_retention interval, after bigint[], after_any bigint[], on_failure text
-- returns: (the id of the run; how: created, existing, replaced, rejected, repeated)
-- locks: the new row's, or of a run whose payload is replaced that one's. Waits for a transaction that is just
--        inserting the same key.
SELECT id, how FROM pgsched.enqueue_result(
    task => %(task)s::text, args => %(args)s::text::jsonb, queue => %(queue)s::text, priority => %(priority)s::integer,
    max_attempts => %(max_attempts)s::integer, timeout => %(timeout)s::interval, at => %(at)s::timestamptz,
    delay => %(delay)s::interval, tags => %(tags)s::text[], unique_key => %(unique_key)s::text,
    unique_scope => coalesce(%(unique_scope)s::text, 'while_active'), on_conflict => %(on_conflict)s::text,
    idempotency_key => %(idempotency_key)s::text, idempotency_retention => %(idempotency_retention)s::interval,
    after => %(after)s::bigint[], after_any => %(after_any)s::bigint[],
    on_failure => coalesce(%(on_failure)s::text, 'cancel'), concurrency_key => %(concurrency_key)s::text)
