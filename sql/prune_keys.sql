-- prune_keys: a small batch of keys that are kept beside runs goes when it has expired.
-- params: n int
-- returns: deleted bigint
-- locks: those rows, skipping locked ones
WITH gone AS (
    -- by place: a join would read all keys once the planner takes `n` for unknown
    DELETE FROM pgsched.kept_keys WHERE ctid = ANY (ARRAY(
        -- a clock asked in a query of its own bounds the scan; asked for each row it would only filter it
        SELECT ctid FROM pgsched.kept_keys WHERE expires_at < (SELECT clock_timestamp())
        ORDER BY expires_at LIMIT %(n)s FOR UPDATE SKIP LOCKED)) RETURNING 1
)
SELECT count(*) AS deleted FROM gone
