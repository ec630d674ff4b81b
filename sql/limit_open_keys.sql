-- limit_open_keys: the keys with admitted runs that some limits bind, to apply a change to them.
-- params: none (those limits that are yet to be applied)
-- returns: (key, concurrency, rate, burst, ordered, admitted, unstarted)
-- locks: none
WITH RECURSIVE k AS (
    (SELECT concurrency_key AS key FROM pgsched.runs WHERE concurrency_key IS NOT NULL AND phase < 3
     ORDER BY concurrency_key LIMIT 1)
    UNION ALL
    SELECT next.key FROM k CROSS JOIN LATERAL (
        SELECT r.concurrency_key AS key FROM pgsched.runs r
        WHERE r.concurrency_key IS NOT NULL AND r.phase < 3 AND r.concurrency_key > k.key
        ORDER BY r.concurrency_key LIMIT 1) next
)
SELECT k.key, b.concurrency, b.rate, b.burst, b.ordered, c.admitted, c.unstarted
FROM k CROSS JOIN LATERAL pgsched.limit_of(k.key) b CROSS JOIN LATERAL (
    SELECT count(*) AS admitted, count(*) FILTER (WHERE r.state = 'queued') AS unstarted
    FROM pgsched.runs r WHERE r.concurrency_key = k.key AND r.phase BETWEEN 2 AND 2  -- as in limit_groups
) c
WHERE c.unstarted > 0 AND EXISTS (SELECT FROM pgsched.limits l WHERE l.applied_at IS NULL
                                  AND l.name IN (k.key, split_part(k.key, ':', 1)))
