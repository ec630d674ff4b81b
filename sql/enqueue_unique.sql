-- enqueue_unique: make one ad-hoc run of a Python task, or find the unfinished one with the same unique key.
-- params: as enqueue, and unique_key text
-- returns: the id of the run; no row when another transaction made a run with that key during this statement:
--          send it again and it is found
-- locks: none but the new row's. Waits for a transaction that is just inserting the same key.
WITH born AS (
    INSERT INTO pgsched.runs (task, args, queue, priority, max_attempts, timeout, available_at, unique_key)
    VALUES (%(task)s::text, %(args)s::text::jsonb, coalesce(%(queue)s::text, 'default'),
            coalesce(%(priority)s::smallint, 5), coalesce(%(max_attempts)s::integer, 3), %(timeout)s::interval,
            coalesce(%(at)s::timestamptz, clock_timestamp() + %(delay)s::interval, clock_timestamp()),
            %(unique_key)s::text)
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND phase < 3 DO NOTHING
    RETURNING id
)
SELECT id FROM born
UNION ALL
SELECT id FROM pgsched.runs WHERE unique_key = %(unique_key)s::text AND phase < 3
LIMIT 1
