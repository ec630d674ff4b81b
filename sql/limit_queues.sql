-- limit_queues: the queues that are limited or paused, and how much of each is admitted. What is more than 20,000 beyond
-- its limits is not counted.
-- params: none
-- returns: (queue: empty in the row that stands for all others; concurrency, rate, period_s, burst, fair, ageing_s: null
--          where nothing is set; admitted, unstarted: 0 where the queue is not limited; counted: whether that is all; slots: of live workers that serve
--          it; paused; tokens, bucket_at, bucket_unstarted: null while the bucket is full; now)
-- locks: none
WITH paused AS MATERIALIZED (
    SELECT what, name FROM pgsched.pauses
    WHERE what IN ('all', 'queue') AND coalesce(resume_at > clock_timestamp(), true)
), named AS (
    SELECT name AS queue FROM pgsched.queues WHERE limited
    UNION SELECT name FROM paused
    UNION SELECT ''
)
SELECT n.queue, q.concurrency_limit AS concurrency, q.rate, extract(epoch FROM q.rate_period)::float8 AS period_s,
    q.rate_burst AS burst, coalesce(q.fair, false) AS fair, extract(epoch FROM q.ageing)::float8 AS ageing_s,
    c.admitted, c.unstarted, c.admitted < m.most AS counted, s.slots,
    EXISTS (SELECT FROM paused p WHERE p.what = 'all' OR p.name = n.queue) AS paused,
    b.tokens, b.at AS bucket_at, b.unstarted AS bucket_unstarted, clock_timestamp() AS now
FROM named n LEFT JOIN pgsched.queues q ON q.name = n.queue
LEFT JOIN pgsched.buckets b ON b.name = 'queue ' || n.queue
CROSS JOIN LATERAL (
    SELECT 20000 + coalesce(q.concurrency_limit, 0)::bigint + coalesce(q.rate_burst, q.rate / 10, 0) AS most
) m
CROSS JOIN LATERAL (
    SELECT count(*) AS admitted, count(*) FILTER (WHERE f.state = 'queued') AS unstarted FROM (
        SELECT r.state FROM pgsched.runs r WHERE q.limited AND r.phase = 2 AND r.queue = n.queue
        ORDER BY r.queue, r.priority LIMIT m.most) f
) c
CROSS JOIN LATERAL (
    SELECT coalesce(sum(w.concurrency), 0)::bigint AS slots FROM pgsched.workers w
    WHERE (q.fair OR q.ageing IS NOT NULL) AND w.stopped_at IS NULL AND w.stopping_at IS NULL
      AND w.seen_at > clock_timestamp() - w.lease AND (w.queues IS NULL OR n.queue = ANY (w.queues))
) s
