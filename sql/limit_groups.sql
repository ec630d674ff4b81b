-- limit_groups: what waits for limits alone, by queue and key, with the limit that binds each key. Found by skipping
-- through the index: one probe a group, however many runs wait in it.
-- params: after_queue text, after_key text (go on behind this group; empty: from the first one), n int
-- returns: (queue, key: empty where a run has none, name: of its limit, concurrency, rate, period_s, burst, ordered,
--          weight), in the order of queue and key; null: no such limit
-- locks: none
WITH RECURSIVE g AS (
    (SELECT r.queue, coalesce(r.concurrency_key, '') AS key, 1 AS n FROM pgsched.runs r
     WHERE r.ready_at IS NOT NULL AND r.phase = 0
       AND (r.queue, coalesce(r.concurrency_key, '')) > (%(after_queue)s::text, %(after_key)s::text)
     ORDER BY r.queue, coalesce(r.concurrency_key, '') LIMIT 1)
    UNION ALL
    SELECT next.queue, next.key, g.n + 1 FROM g CROSS JOIN LATERAL (
        SELECT r.queue, coalesce(r.concurrency_key, '') AS key FROM pgsched.runs r
        WHERE r.ready_at IS NOT NULL AND r.phase = 0
          AND (r.queue, coalesce(r.concurrency_key, '')) > (g.queue, g.key)
        ORDER BY r.queue, coalesce(r.concurrency_key, '') LIMIT 1
    ) next
    WHERE g.n < %(n)s
)
SELECT g.queue, g.key, b.name, b.concurrency, b.rate, b.period_s, b.burst, b.ordered, coalesce(b.weight, 1) AS weight
FROM g LEFT JOIN LATERAL pgsched.limit_of(g.key) b ON g.key <> ''
ORDER BY g.n
