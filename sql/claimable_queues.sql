-- claimable_queues: the queues that have open runs, found by skipping through the claim index (one probe a queue).
-- params: none
-- returns: queue text
-- locks: none
WITH RECURSIVE q AS (
    (SELECT queue FROM pgsched.runs WHERE phase = 2 ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT r.queue FROM pgsched.runs r WHERE r.phase = 2 AND r.queue > q.queue ORDER BY r.queue LIMIT 1)
    FROM q WHERE q.queue IS NOT NULL
)
SELECT queue FROM q WHERE queue IS NOT NULL
