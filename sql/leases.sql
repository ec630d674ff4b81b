-- leases: how long claims are believed in this fleet.
-- params: none
-- returns: (shortest float8, longest float8): the leases of workers seen lately, in seconds; null when there is none
-- locks: none
SELECT extract(epoch FROM min(lease))::float8 AS shortest, extract(epoch FROM max(lease))::float8 AS longest
FROM pgsched.workers
-- counted back from the newest: the clock may just have been moved
WHERE stopped_at IS NULL AND seen_at > (SELECT max(seen_at) FROM pgsched.workers) - interval '1 day'
