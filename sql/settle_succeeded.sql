-- settle_succeeded: record attempts that succeeded, each fenced by (id, token, running): what `settle` does, for the
-- one outcome that leaves no evidence behind.
-- params: parallel arrays ids bigint[], tokens uuid[], results text[] (JSON; the whole array null: none has one)
-- returns: n of those that were ours: their place in the arrays, from 1
-- locks: row locks on those runs. Repeating it is harmless.
WITH settled AS (
    UPDATE pgsched.runs r SET state = 'succeeded', finished_at = clock_timestamp(), result = g.result::jsonb,
        error = NULL, reason = NULL
    FROM unnest(%(ids)s::text::bigint[], %(tokens)s::text::uuid[], %(results)s::text[])
        WITH ORDINALITY AS g(id, token, result, n)
    WHERE r.id = g.id AND CASE WHEN r.token = g.token AND r.state = 'running' THEN true END
    RETURNING g.n, r.job_id, r.has_children, r.ready_at
), woken AS (
    SELECT pg_notify('pgsched_leader', 'runs') WHERE EXISTS (
        SELECT FROM settled s WHERE s.has_children OR s.ready_at IS NOT NULL OR s.job_id IS NOT NULL AND EXISTS (
            SELECT FROM pgsched.runs w WHERE w.job_id = s.job_id AND w.phase < 3 AND w.state = 'waiting'))
)
SELECT n, (SELECT count(*) FROM woken) AS notified FROM settled
