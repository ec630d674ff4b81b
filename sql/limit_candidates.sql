-- limit_candidates: the first runs of some groups, in the order in which they are to be admitted: by (priority, ready_at,
-- id); by (ready_at, id) over all queues where the key is ordered; where priorities rise with age, the first ones of
-- each priority. A run of a paused task lets the others by; where the key is ordered, it holds its place.
-- params: parallel arrays queues text[], keys text[], ns int[], ordereds boolean[], ageing_ss float8[]
-- returns: (n: the group's place in the arrays, from 1; id, priority, ready_at, waited_s)
-- locks: none
WITH paused AS MATERIALIZED (
    SELECT coalesce(array_agg(name), '{}') AS tasks FROM pgsched.pauses
    WHERE what = 'task' AND coalesce(resume_at > clock_timestamp(), true)
)
SELECT g.n, f.id, f.priority, f.ready_at, extract(epoch FROM clock_timestamp() - f.ready_at)::float8 AS waited_s
FROM unnest(%(queues)s::text[], %(keys)s::text[], %(ns)s::int[], %(ordereds)s::boolean[], %(ageing_ss)s::float8[])
    WITH ORDINALITY AS g(queue, key, most, ordered, ageing_s, n)
CROSS JOIN LATERAL (
    (SELECT r.id, r.priority, r.ready_at, r.task, r.queue
     FROM pgsched.runs r
     WHERE NOT g.ordered AND g.ageing_s IS NULL AND r.ready_at IS NOT NULL AND r.phase = 0 AND r.queue = g.queue
       AND coalesce(r.concurrency_key, '') = g.key AND r.available_at <= clock_timestamp()
       AND coalesce(least(r.held_until, r.expires_at) > clock_timestamp() OR r.started_at IS NOT NULL, true)
       AND r.task <> ALL ((SELECT tasks FROM paused)::text[])
     ORDER BY r.priority, r.ready_at, r.id LIMIT g.most)
    UNION ALL
    (SELECT r.id, r.priority, r.ready_at, r.task, r.queue
     FROM pgsched.runs r
     WHERE g.ordered AND r.concurrency_key = g.key AND r.phase = 0 AND r.ready_at IS NOT NULL
       AND r.available_at <= clock_timestamp()
       AND coalesce(least(r.held_until, r.expires_at) > clock_timestamp() OR r.started_at IS NOT NULL, true)
     ORDER BY r.concurrency_key, r.phase, r.ready_at, r.id LIMIT g.most)
    UNION ALL
    SELECT a.* FROM generate_series(0, 9) AS p(priority) CROSS JOIN LATERAL (
        SELECT r.id, r.priority, r.ready_at, r.task, r.queue
        FROM pgsched.runs r
        WHERE NOT g.ordered AND g.ageing_s IS NOT NULL AND r.ready_at IS NOT NULL AND r.phase = 0
          AND r.queue = g.queue AND coalesce(r.concurrency_key, '') = g.key AND r.priority = p.priority
          AND r.available_at <= clock_timestamp()
          AND coalesce(least(r.held_until, r.expires_at) > clock_timestamp() OR r.started_at IS NOT NULL, true)
          AND r.task <> ALL ((SELECT tasks FROM paused)::text[])
        ORDER BY r.ready_at, r.id LIMIT g.most
    ) a
) f
WHERE f.queue = g.queue AND f.task <> ALL ((SELECT tasks FROM paused)::text[])
