-- enqueue: make one ad-hoc run of a Python task.
-- params: task text, args text (JSON), queue text, priority smallint, max_attempts integer, timeout interval,
--         at timestamptz or delay interval (from now), tags text[], concurrency_key text; null takes the
--         default
-- returns: (the id of the run, 'created')
-- locks: none but the new row's
INSERT INTO pgsched.runs (task, args, queue, priority, max_attempts, timeout, available_at, tags, concurrency_key)
VALUES (%(task)s::text, %(args)s::text::jsonb, coalesce(%(queue)s::text, 'default'),
        coalesce(%(priority)s::smallint, 5), coalesce(%(max_attempts)s::integer, 3), %(timeout)s::interval,
        coalesce(%(at)s::timestamptz, clock_timestamp() + %(delay)s::interval, clock_timestamp()), %(tags)s::text[],
        %(concurrency_key)s::text)
RETURNING id, 'created'
