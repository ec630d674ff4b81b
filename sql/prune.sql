-- prune: delete a small batch of old history: runs ended before the horizon with their attempts and logs.
-- params: keep_s float8, n int
-- returns: deleted bigint
-- locks: the deleted rows
WITH old AS MATERIALIZED (
    SELECT id FROM pgsched.runs
    WHERE phase >= 3 AND finished_at < clock_timestamp() - make_interval(secs => %(keep_s)s)
    ORDER BY finished_at LIMIT %(n)s FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM pgsched.runs r USING old WHERE r.id = old.id RETURNING r.id
), attempts_gone AS (
    DELETE FROM pgsched.attempts a USING old WHERE a.run_id = old.id
), logs_gone AS (
    DELETE FROM pgsched.run_logs l USING old WHERE l.run_id = old.id
)
SELECT count(*) AS deleted FROM gone
