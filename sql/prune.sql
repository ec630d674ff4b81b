-- prune: delete a small batch of old history: runs ended before the horizon with their attempts, logs and
-- edges. What became of a run stays with its idempotency key until that expires. A run stays while one that waited for
-- it is not finished: it may ask for its result.
-- params: keep_s float8, n int
-- returns: deleted bigint
-- locks: the deleted rows, and the keys that stand for them
WITH old AS MATERIALIZED (
    SELECT id FROM pgsched.runs r
    -- the horizon is asked for once: asked for each row it would only filter the index, and all of history be read
    WHERE phase >= 3 AND finished_at < (SELECT clock_timestamp() - make_interval(secs => %(keep_s)s))
      AND NOT EXISTS (SELECT FROM pgsched.dependencies d JOIN pgsched.runs c ON c.id = d.run_id
                      WHERE d.parent_id = r.id AND c.phase < 3 OFFSET 0)
    ORDER BY finished_at LIMIT %(n)s FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM pgsched.runs r USING old WHERE r.id = old.id
    RETURNING r.id, r.idempotency_key, r.state, r.finished_at,
        CASE WHEN r.idempotency_key IS NOT NULL THEN r.result END AS result,
        CASE WHEN r.idempotency_key IS NOT NULL THEN r.error END AS error
), attempts_gone AS (
    DELETE FROM pgsched.attempts a USING old WHERE a.run_id = old.id
), logs_gone AS (
    DELETE FROM pgsched.run_logs l USING old WHERE l.run_id = old.id
), edges_gone AS (
    DELETE FROM pgsched.dependencies d USING old WHERE d.run_id = old.id
), told AS (
    UPDATE pgsched.kept_keys k
    SET state = gone.state, result = gone.result, error = gone.error, finished_at = gone.finished_at
    -- by their keys, and not by a join that reads all of them
    FROM gone WHERE k.scope = 'idempotency' AND k.key = gone.idempotency_key AND k.run_id = gone.id
        AND k.key = ANY (ARRAY(SELECT g.idempotency_key FROM gone g WHERE g.idempotency_key IS NOT NULL))
)
SELECT count(*) AS deleted FROM gone
