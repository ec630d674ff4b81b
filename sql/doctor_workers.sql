-- doctor_workers: what workers that have not signed off say of themselves.
-- params: none
-- returns: (name, hostname, version, seen_s, lease_s, alive: seen within its lease; clock_ahead_s, tz_version)
-- locks: none
SELECT name, hostname, version, extract(epoch FROM clock_timestamp() - seen_at)::float8 AS seen_s,
    extract(epoch FROM lease)::float8 AS lease_s, seen_at > clock_timestamp() - lease AS alive, clock_ahead_s, tz_version
FROM pgsched.workers WHERE stopped_at IS NULL ORDER BY id
