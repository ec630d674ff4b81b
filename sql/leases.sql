-- leases: how long claims are believed in this fleet.
-- params: none
-- returns: (shortest float8, longest float8): the leases of workers seen lately, in seconds; null when there is none
-- locks: none
SELECT extract(epoch FROM min(lease))::float8 AS shortest, extract(epoch FROM max(lease))::float8 AS longest
FROM pgsched.workers
WHERE stopped_at IS NULL AND seen_at > clock_timestamp() - interval '1 day'
