-- claimable_queues: the queues that have open runs, found by skipping through the claim index (one probe a queue).
-- params: asleep_s float8: for so long, whoever makes a run is to notify the workers, because this one may be asleep
--         (null: leave that as it is)
-- returns: queue text
-- locks: none
WITH RECURSIVE asleep AS MATERIALIZED (
    SELECT setval('pgsched.asleep_until', until) AS until
    FROM (SELECT ((date_part('epoch', clock_timestamp()) + %(asleep_s)s::float8) * 1000)::bigint AS until) s
    WHERE until > coalesce(pg_sequence_last_value('pgsched.asleep_until'), 0)
), q AS (
    (SELECT queue FROM pgsched.runs WHERE phase = 2 AND (SELECT count(*) FROM asleep) >= 0 ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT r.queue FROM pgsched.runs r WHERE r.phase = 2 AND r.queue > q.queue ORDER BY r.queue LIMIT 1)
    FROM q WHERE q.queue IS NOT NULL
)
SELECT queue FROM q WHERE queue IS NOT NULL
