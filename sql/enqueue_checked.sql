-- enqueue_checked: `enqueue`, by one who may say that a run has been checked: what the trigger does is done in here.
-- params: those of `enqueue`
-- returns: (the id of the run, 'created')
-- locks: none but the new row's
INSERT INTO pgsched.runs (task, args, queue, priority, max_attempts, timeout, available_at, tags, concurrency_key, checked)
VALUES (%(task)s::text, %(args)s::text::jsonb, coalesce(%(queue)s::text, 'default'),
        coalesce(%(priority)s::smallint, 5), coalesce(%(max_attempts)s::integer, 3), %(timeout)s::interval,
        coalesce(%(at)s::timestamptz, clock_timestamp() + %(delay)s::interval, clock_timestamp()), %(tags)s::text[],
        %(concurrency_key)s::text,
        CASE WHEN %(at)s::timestamptz IS NULL AND %(delay)s::interval IS NULL AND %(concurrency_key)s::text IS NULL
            AND NOT pgsched.may_be_asleep() THEN
            pgsched.is_plain(%(task)s::text, %(args)s::text::jsonb, coalesce(%(queue)s::text, 'default'),
                coalesce(%(priority)s::smallint, 5::smallint), coalesce(%(max_attempts)s::integer, 3),
                %(timeout)s::interval)
        END)
RETURNING id, 'created'
