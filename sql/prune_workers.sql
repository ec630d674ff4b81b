-- prune_workers: workers not seen for three leases count as stopped; rows of a week ago go, as do old terms.
-- params: none
-- returns: nothing
-- locks: those rows
WITH gone AS (
    DELETE FROM pgsched.workers WHERE seen_at < clock_timestamp() - interval '7 days'
), terms AS (
    DELETE FROM pgsched.leader WHERE seen_at < clock_timestamp() - interval '30 days'
        AND term < (SELECT max(term) FROM pgsched.leader)
)
UPDATE pgsched.workers SET stopped_at = seen_at WHERE stopped_at IS NULL AND seen_at < clock_timestamp() - 3 * lease
    AND seen_at >= clock_timestamp() - interval '7 days'
