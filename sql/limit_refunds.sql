-- limit_refunds: claims of these queues and keys that were given back unstarted. Each is told once.
-- params: queues text[], keys text[]: those that have a rate
-- returns: (queue, key: null where there is none, claimed_at, age_s)
-- locks: those rows
DELETE FROM pgsched.refunds WHERE queue = ANY (%(queues)s::text[]) OR concurrency_key = ANY (%(keys)s::text[])
RETURNING queue, concurrency_key AS key, claimed_at,
    greatest(0, extract(epoch FROM clock_timestamp() - claimed_at))::float8 AS age_s
