-- prune_audit: what people changed so long ago that the setting keeps it no longer.
-- params: n int
-- returns: gone bigint
-- locks: those rows
SELECT pgsched.prune_audit(%(n)s) AS gone
