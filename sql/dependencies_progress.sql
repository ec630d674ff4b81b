-- dependencies_progress: how far some runs are.
-- params: ids text (an array of bigint)
-- returns: (total, done, failed bigint): of them, ended; of those, not succeeded. What was pruned has ended well.
-- locks: none
SELECT count(*) AS total, count(*) FILTER (WHERE r.id IS NULL OR r.phase >= 3) AS done,
    count(*) FILTER (WHERE r.phase >= 3 AND r.state <> 'succeeded') AS failed
FROM unnest(%(ids)s::text::bigint[]) AS given(id) LEFT JOIN LATERAL (
    SELECT * FROM pgsched.runs r WHERE r.id = given.id OFFSET 0) r ON true
