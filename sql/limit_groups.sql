-- limit_groups: what waits for limits alone, by queue and key, with the first run of each and the limit that binds it.
-- Found by skipping through the index: one probe a group, however many runs wait in it.
-- params: after_queue text, after_key text (go on behind this group; empty: from the first one), n int
-- returns: (queue, key: empty where a run has none, name: of its limit, concurrency, rate, period_s, burst, ordered,
--          weight; admitted: queued, running, and for an ordered key also what has started and waits for a further
--          attempt; unstarted: of those the queued ones; tokens, bucket_at, bucket_unstarted: null while the bucket of its
--          rate is full; id, priority, ready_at, waited_s: of the run that is first by (priority, ready_at, id), or
--          by (ready_at, id) where the key is ordered, as in limit_candidates; free: nothing else is in its way), in the
--          order of queue and key; null: no such limit. Without a limit nothing is counted
-- locks: none
WITH RECURSIVE g AS (
    (SELECT r.queue, coalesce(r.concurrency_key, '') AS key, 1 AS n, r.id FROM pgsched.runs r
     WHERE r.ready_at IS NOT NULL AND r.phase = 0
       AND (r.queue, coalesce(r.concurrency_key, '')) > (%(after_queue)s::text, %(after_key)s::text)
     ORDER BY r.queue, coalesce(r.concurrency_key, ''), r.priority, r.ready_at, r.id LIMIT 1)
    UNION ALL
    SELECT next.queue, next.key, g.n + 1, next.id FROM g CROSS JOIN LATERAL (
        SELECT r.queue, coalesce(r.concurrency_key, '') AS key, r.id FROM pgsched.runs r
        WHERE r.ready_at IS NOT NULL AND r.phase = 0
          AND (r.queue, coalesce(r.concurrency_key, '')) > (g.queue, g.key)
        ORDER BY r.queue, coalesce(r.concurrency_key, ''), r.priority, r.ready_at, r.id LIMIT 1
    ) next
    WHERE g.n < %(n)s
), paused AS MATERIALIZED (
    SELECT array_agg(name) AS tasks FROM pgsched.pauses
    WHERE what = 'task' AND coalesce(resume_at > clock_timestamp(), true)
)
SELECT g.queue, g.key, b.name, b.concurrency, b.rate, b.period_s, b.burst, b.ordered, coalesce(b.weight, 1) AS weight,
    c.admitted + h.held AS admitted, c.unstarted, k.tokens, k.at AS bucket_at, k.unstarted AS bucket_unstarted,
    r.id, r.priority, r.ready_at, extract(epoch FROM clock_timestamp() - r.ready_at)::float8 AS waited_s,
    r.queue = g.queue AND r.available_at <= clock_timestamp()
        AND coalesce(least(r.held_until, r.expires_at) > clock_timestamp() OR r.started_at IS NOT NULL, true)
        AND NOT coalesce(r.task = ANY ((SELECT tasks FROM paused)::text[]), false) AS free
FROM g LEFT JOIN LATERAL pgsched.limit_of(g.key) b ON g.key <> ''
LEFT JOIN pgsched.buckets k ON b.rate IS NOT NULL AND k.name = 'key ' || g.key
-- BETWEEN: `= 2` would let the planner read all queued runs for each key, where its statistics know of none
CROSS JOIN LATERAL (
    SELECT count(*) AS admitted, count(*) FILTER (WHERE a.state = 'queued') AS unstarted FROM pgsched.runs a
    WHERE coalesce(b.concurrency, b.rate) IS NOT NULL AND a.concurrency_key = g.key AND a.phase BETWEEN 2 AND 2
) c
CROSS JOIN LATERAL (
    SELECT count(*) AS held FROM pgsched.runs a
    WHERE b.ordered AND a.concurrency_key = g.key AND a.phase BETWEEN 1 AND 1 AND a.started_at IS NOT NULL
) h
LEFT JOIN LATERAL (
    SELECT a.id FROM pgsched.runs a
    WHERE b.ordered AND a.concurrency_key = g.key AND a.phase BETWEEN 0 AND 0 AND a.ready_at IS NOT NULL
    ORDER BY a.concurrency_key, a.phase, a.ready_at, a.id LIMIT 1
) o ON true
JOIN pgsched.runs r ON r.id = coalesce(o.id, g.id)
ORDER BY g.n
