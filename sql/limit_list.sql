-- limit_list: the limits of keys.
-- params: none
-- returns: as the table, and rate_s (the period in seconds), applied, keys, admitted, waiting: of the keys that each binds
--          and that have unfinished runs (at most 10,000 keys are looked at)
-- locks: none
WITH RECURSIVE k AS (
    (SELECT concurrency_key AS key, 1 AS n FROM pgsched.runs WHERE concurrency_key IS NOT NULL AND phase < 3
     ORDER BY concurrency_key LIMIT 1)
    UNION ALL
    SELECT next.key, k.n + 1 FROM k CROSS JOIN LATERAL (
        SELECT r.concurrency_key AS key FROM pgsched.runs r
        WHERE r.concurrency_key IS NOT NULL AND r.phase < 3 AND r.concurrency_key > k.key
        ORDER BY r.concurrency_key LIMIT 1) next
    WHERE k.n < 10000
), counted AS MATERIALIZED (
    SELECT b.name, c.* FROM k CROSS JOIN LATERAL pgsched.limit_of(k.key) b CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE f.phase = 2) AS admitted, count(*) FILTER (WHERE f.phase = 0) AS waiting
        FROM (SELECT r.phase FROM pgsched.runs r WHERE r.concurrency_key = k.key AND r.phase < 3 LIMIT 10000) f) c
    WHERE k.key !~ '^job:[0-9]'
)
SELECT l.name, l.concurrency, l.rate, extract(epoch FROM l.rate_period)::float8 AS rate_s, l.rate_burst, l.ordered,
    l.weight, l.applied_at IS NOT NULL AS applied, count(c.name) AS keys,
    coalesce(sum(c.admitted), 0)::bigint AS admitted, coalesce(sum(c.waiting), 0)::bigint AS waiting
FROM pgsched.limits l LEFT JOIN counted c ON c.name = l.name
GROUP BY l.name ORDER BY l.name
