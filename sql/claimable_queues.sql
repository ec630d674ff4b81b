-- claimable_queues: the queues that have open runs, found by skipping through the claim index (one probe a queue).
-- params: asleep_s float8: for so long, whoever makes a run is to notify the workers, because this one may be asleep
--         (null: leave that as it is); look boolean: whether to look for queues; known text[]: but not for these
-- returns: (queue text, sure_s float8); first a row without a queue, which says for how many seconds it will be so
--          (null: not asked), then one for each queue
-- What was claimed of a queue leaves dead entries, which each look reads again while some session pins xmin: so those of
-- the known queues are gone round, in the gaps between their names.
-- locks: none
WITH RECURSIVE asleep AS MATERIALIZED (
    SELECT CASE WHEN %(asleep_s)s::float8 IS NOT NULL THEN pgsched.workers_asleep(%(asleep_s)s::float8) END AS sure_s
), q AS (
    SELECT lag(k, 1, '') OVER (ORDER BY k NULLS LAST) AS queue, k AS upper, true AS is_known
    FROM unnest(%(known)s::text::text[] || NULL::text) k WHERE %(look)s
    UNION ALL
    SELECT next.queue, q.upper, false
    FROM q CROSS JOIN LATERAL (
        (SELECT r.queue FROM pgsched.runs r WHERE r.phase = 2 AND r.queue > q.queue AND r.queue < q.upper
         ORDER BY r.queue LIMIT 1)
        UNION ALL
        (SELECT r.queue FROM pgsched.runs r WHERE q.upper IS NULL AND r.phase = 2 AND r.queue > q.queue
         ORDER BY r.queue LIMIT 1)
    ) next
)
SELECT NULL AS queue, sure_s FROM asleep
UNION ALL
SELECT queue, NULL FROM q WHERE NOT is_known
