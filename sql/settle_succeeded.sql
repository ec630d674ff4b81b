-- settle_succeeded: record attempts that succeeded, each fenced by (id, token, running): what `settle` does, for the
-- one outcome that leaves no evidence behind.
-- params: ids bigint[] (ascending, none twice); firsts bigint[], tokens uuid[]: of each stretch of ids that have one token
--         the first id, and that token; results jsonb, an array as long as ids (null: none has one)
-- returns: one row: how many of those were ours; their ids, unless all were
-- locks: row locks on those runs, in the order given. Repeating it is harmless.
-- One pass over the key's index takes all ids; a row's place in an array is found by halving it (width_bucket).
WITH settled AS (
    UPDATE pgsched.runs r SET state = 'succeeded', phase = 3, finished_at = clock_timestamp(), error = NULL,
        reason = NULL,
        result = CASE WHEN %(results)s::jsonb IS NOT NULL
                      THEN nullif(%(results)s::jsonb -> width_bucket(r.id, %(ids)s::bigint[]) - 1, 'null') END
    WHERE r.id = ANY (%(ids)s::bigint[])
      AND CASE WHEN r.state = 'running' AND r.token = (%(tokens)s::uuid[])[width_bucket(r.id, %(firsts)s::bigint[])]
               THEN true END
    RETURNING r.id, r.job_id, r.has_children OR r.ready_at IS NOT NULL AS awaited
), ours AS (
    SELECT count(*) AS n, coalesce(bool_or(awaited OR job_id IS NOT NULL), false) AS tell FROM settled
), woken AS (
    SELECT pg_notify('pgsched_leader', 'runs') FROM ours
    WHERE tell AND EXISTS (
        SELECT FROM settled s WHERE s.awaited OR s.job_id IS NOT NULL AND EXISTS (
            SELECT FROM pgsched.runs w WHERE w.job_id = s.job_id AND w.phase < 3 AND w.state = 'waiting'))
)
SELECT n, CASE WHEN n < cardinality(%(ids)s::bigint[]) THEN ARRAY(SELECT id FROM settled) END AS ids,
    (SELECT count(*) FROM woken) AS notified
FROM ours
