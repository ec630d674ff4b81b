-- claimable_queues: the queues that have open runs, found by skipping through the claim index (one probe a queue).
-- params: asleep_s float8: for so long, whoever makes a run is to notify the workers, because this one may be asleep
--         (null: leave that as it is); look boolean: whether to look for queues
-- returns: (queue text, sure_s float8); first a row without a queue, which says for how many seconds it will be so
--          (null: not asked), then one for each queue
-- locks: none
WITH RECURSIVE asleep AS MATERIALIZED (
    SELECT CASE WHEN %(asleep_s)s::float8 IS NOT NULL THEN pgsched.workers_asleep(%(asleep_s)s::float8) END AS sure_s
), q AS (
    (SELECT queue FROM pgsched.runs WHERE phase = 2 AND %(look)s ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT r.queue FROM pgsched.runs r WHERE r.phase = 2 AND r.queue > q.queue ORDER BY r.queue LIMIT 1)
    FROM q WHERE q.queue IS NOT NULL
)
SELECT NULL AS queue, sure_s FROM asleep
UNION ALL
SELECT queue, NULL FROM q WHERE queue IS NOT NULL
