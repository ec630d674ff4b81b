-- prune_keys: a small batch of keys that are kept beside runs goes when it has expired.
-- params: n int
-- returns: deleted bigint
-- locks: those rows, skipping locked ones
WITH old AS MATERIALIZED (
    SELECT scope, key FROM pgsched.kept_keys WHERE expires_at < clock_timestamp()
    ORDER BY expires_at LIMIT %(n)s FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM pgsched.kept_keys k USING old WHERE (k.scope, k.key) = (old.scope, old.key) RETURNING 1
)
SELECT count(*) AS deleted FROM gone
