-- limit_take_back: the last of the admitted runs that have not started wait again, because there are more than a limit
-- allows by now. What runs is left alone.
-- params: parallel arrays queues text[] (null: by key), keys text[] (null: by queue), ns int[]
-- returns: (n: the place in the arrays, from 1; id), of each that was taken back
-- locks: row locks on those runs, skipping locked ones: a worker is just claiming them
WITH last AS MATERIALIZED (
    SELECT g.n, f.id FROM unnest(%(queues)s::text[], %(keys)s::text[], %(ns)s::int[])
        WITH ORDINALITY AS g(queue, key, most, n)
    CROSS JOIN LATERAL (
        (SELECT r.id FROM pgsched.runs r
         WHERE g.key IS NULL AND r.phase = 2 AND r.queue = g.queue AND r.state = 'queued'
         ORDER BY r.queue DESC, r.priority DESC, r.available_at DESC, r.id DESC LIMIT g.most FOR UPDATE SKIP LOCKED)
    ) f
    UNION ALL
    SELECT g.n, f.id FROM unnest(%(queues)s::text[], %(keys)s::text[], %(ns)s::int[])
        WITH ORDINALITY AS g(queue, key, most, n)
    CROSS JOIN LATERAL (
        (SELECT r.id FROM pgsched.runs r
         WHERE g.key IS NOT NULL AND r.concurrency_key = g.key AND r.phase = 2 AND r.state = 'queued'
         ORDER BY r.concurrency_key DESC, r.phase DESC, r.ready_at DESC, r.id DESC
         LIMIT g.most FOR UPDATE SKIP LOCKED)
    ) f
)
UPDATE pgsched.runs r SET state = 'waiting', phase = 0, ready_at = coalesce(r.ready_at, r.available_at)
FROM last WHERE r.id = last.id
RETURNING last.n, r.id
