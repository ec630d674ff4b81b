-- limit_forget: drop the buckets that have been full for long or are those of no limit, pauses that ended by themselves,
-- and the bits of queues that nothing is set for. A bucket whose admitted runs have all gone gives them up: it gains from
-- now on only.
-- params: none
-- returns: nothing
-- locks: those rows
WITH known AS MATERIALIZED (
    SELECT b.name, b.at, b.tokens, b.unstarted, b.name LIKE 'queue %%' AS of_queue, substr(b.name, 5) AS key,
        substr(b.name, 7) AS queue FROM pgsched.buckets b
), settled AS (
    UPDATE pgsched.buckets b SET unstarted = 0, at = clock_timestamp() FROM known k
    WHERE b.name = k.name AND k.unstarted > 0 AND k.at < clock_timestamp() - interval '1 minute'
        -- no joins: one look each, as in limit_groups
        AND CASE WHEN k.of_queue THEN (SELECT true FROM pgsched.runs r WHERE r.phase = 2 AND r.queue = k.queue LIMIT 1)
            ELSE (SELECT true FROM pgsched.runs r WHERE r.concurrency_key = k.key AND r.phase BETWEEN 2 AND 2 LIMIT 1) END IS NULL
), bounded AS (
    SELECT k.name, k.at, k.unstarted, coalesce(q.rate, l.rate) AS rate, coalesce(q.rate_burst, l.burst, 0) AS burst,
        coalesce(extract(epoch FROM q.rate_period)::float8, l.period_s) AS period_s
    FROM known k LEFT JOIN pgsched.queues q ON k.of_queue AND q.name = k.queue
    LEFT JOIN LATERAL pgsched.limit_of(k.key) l ON NOT k.of_queue
), gone AS (
    DELETE FROM pgsched.buckets b USING bounded k
    WHERE b.name = k.name AND (k.rate IS NULL OR k.unstarted = 0
        AND k.at < clock_timestamp() - make_interval(secs => 60 + k.period_s * (1 + k.burst::float8 / k.rate)))
), worthless AS (
    DELETE FROM pgsched.refunds WHERE claimed_at < clock_timestamp() - interval '31 days'
), over AS (
    -- and those for a first limit of which there is none to apply: somebody has renamed the queue
    DELETE FROM pgsched.pauses p WHERE p.resume_at <= clock_timestamp() OR p.what = 'limit' AND NOT EXISTS (
        SELECT FROM pgsched.queues q WHERE q.name = p.name AND q.applied_at IS NULL)
)
SELECT pgsched.forget_gates()
