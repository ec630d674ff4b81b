-- limit_keys: how much of some keys is admitted, in whatever queue.
-- params: parallel arrays keys text[], ordereds boolean[]
-- returns: (key, admitted: queued, running, and for an ordered key also what has started and waits for a further attempt;
--          unstarted: of those the queued ones; tokens, bucket_at, bucket_unstarted: null while its bucket is full)
-- locks: none
SELECT k.key, c.admitted + h.held AS admitted, c.unstarted, b.tokens, b.at AS bucket_at,
    b.unstarted AS bucket_unstarted
FROM unnest(%(keys)s::text[], %(ordereds)s::boolean[]) AS k(key, ordered)
LEFT JOIN pgsched.buckets b ON b.name = 'key ' || k.key
CROSS JOIN LATERAL (
    SELECT count(*) AS admitted, count(*) FILTER (WHERE r.state = 'queued') AS unstarted
    FROM pgsched.runs r WHERE r.concurrency_key = k.key AND r.phase = 2
) c
CROSS JOIN LATERAL (
    SELECT count(*) AS held FROM pgsched.runs r
    WHERE k.ordered AND r.concurrency_key = k.key AND r.phase = 1 AND r.started_at IS NOT NULL
) h
