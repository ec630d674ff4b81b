-- enqueue_plain: need a trigger not look at each of these runs? Asked in the transaction that makes them.
-- params: those of `enqueue`, but args, at, delay and concurrency_key
-- returns: boolean
-- locks: that of a writer on runs
SELECT pgsched.are_plain(%(task)s::text, coalesce(%(queue)s::text, 'default'), coalesce(%(priority)s::smallint, 5::smallint),
    coalesce(%(max_attempts)s::integer, 3), %(timeout)s::interval)
