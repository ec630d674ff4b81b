-- rollup_prune: minutes and hours that the settings keep no longer go, a batch of each.
-- params: n int
-- returns: nothing
-- locks: those rows
WITH gone AS (
    SELECT r.ctid FROM pgsched.rollups r
    WHERE r.width IN ('minute', 'minute of all') AND r.from_at < (SELECT clock_timestamp() - keep_minutes FROM pgsched.retention)
    LIMIT %(n)s
), gone_hours AS (
    SELECT r.ctid FROM pgsched.rollups r
    WHERE r.width IN ('hour', 'hour of all') AND r.from_at < (SELECT clock_timestamp() - keep_hours FROM pgsched.retention)
    LIMIT %(n)s
)
DELETE FROM pgsched.rollups WHERE ctid = ANY (ARRAY(SELECT ctid FROM gone UNION ALL SELECT ctid FROM gone_hours))
