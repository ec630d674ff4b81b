-- enqueue_rows: make a run for each of `args`, where row security forbids COPY.
-- params: those of `enqueue`, but args text[]: JSON texts; and trace text: a JSON object, or null
-- returns: nothing
-- locks: none but the new rows'
INSERT INTO pgsched.runs (task, args, queue, priority, max_attempts, timeout, available_at, tags, concurrency_key,
    options)
SELECT %(task)s::text, a.args::jsonb, coalesce(%(queue)s::text, 'default'), coalesce(%(priority)s::smallint, 5),
    coalesce(%(max_attempts)s::integer, 3), %(timeout)s::interval,
    coalesce(%(at)s::timestamptz, clock_timestamp() + %(delay)s::interval, clock_timestamp()), %(tags)s::text[],
    %(concurrency_key)s::text,
    CASE WHEN %(trace)s::text IS NOT NULL THEN jsonb_build_object('trace', %(trace)s::text::jsonb) END
FROM unnest(%(args)s::text[]) AS a(args)
