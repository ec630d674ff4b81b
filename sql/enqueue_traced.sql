-- enqueue_traced: as enqueue, for a run that belongs to a trace.
-- params: those of enqueue, and trace text: a JSON object with traceparent and perhaps tracestate
-- returns: (the id of the run, 'created')
-- locks: none but the new row's
INSERT INTO pgsched.runs (task, args, queue, priority, max_attempts, timeout, available_at, tags, concurrency_key, options)
VALUES (%(task)s::text, %(args)s::text::jsonb, coalesce(%(queue)s::text, 'default'),
        coalesce(%(priority)s::smallint, 5), coalesce(%(max_attempts)s::integer, 3), %(timeout)s::interval,
        coalesce(%(at)s::timestamptz, clock_timestamp() + %(delay)s::interval, clock_timestamp()), %(tags)s::text[],
        %(concurrency_key)s::text, jsonb_build_object('trace', %(trace)s::text::jsonb))
RETURNING id, 'created'
