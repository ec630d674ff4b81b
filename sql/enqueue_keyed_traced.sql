-- enqueue_keyed_traced: as enqueue_keyed, for a run that belongs to a trace.
-- params: those of enqueue_keyed, and trace text: a JSON object with traceparent and perhaps tracestate
-- returns: (the id of the run; how: created, existing, replaced, rejected, repeated; nothing)
-- locks: as enqueue_keyed
SELECT id, how, pgsched.carry_trace(id, how, %(trace)s::text::jsonb) FROM pgsched.enqueue_result(
    task => %(task)s::text, args => %(args)s::text::jsonb, queue => %(queue)s::text, priority => %(priority)s::integer,
    max_attempts => %(max_attempts)s::integer, timeout => %(timeout)s::interval, at => %(at)s::timestamptz,
    delay => %(delay)s::interval, tags => %(tags)s::text[], unique_key => %(unique_key)s::text,
    unique_scope => coalesce(%(unique_scope)s::text, 'while_active'), on_conflict => %(on_conflict)s::text,
    idempotency_key => %(idempotency_key)s::text, idempotency_retention => %(idempotency_retention)s::interval,
    after => %(after)s::bigint[], after_any => %(after_any)s::bigint[],
    on_failure => coalesce(%(on_failure)s::text, 'cancel'), concurrency_key => %(concurrency_key)s::text)
