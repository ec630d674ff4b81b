-- lease_look: claims whose lease has ended, and claims that would be believed for longer than their worker's lease (the
-- clock was moved back). No index names a lease, so that claiming moves no index entry: every run that is queued or
-- running is read, and what was claimed of late where something pins xmin.
-- params: n int (at most this many), before_s float8 (leases that had ended then, since 1970; null: now), long boolean
--         (whether to look for those that are too long)
-- returns: (id, expired boolean)
-- locks: none
SELECT r.id, r.lease_until < clock_timestamp() AS expired
FROM pgsched.runs r
WHERE r.phase = 2 AND r.state = 'running'
  AND (r.lease_until < least(clock_timestamp(), to_timestamp(%(before_s)s::float8))
       OR %(long)s::boolean AND r.lease_until > clock_timestamp() + coalesce(
           (SELECT w.lease FROM pgsched.workers w WHERE w.id = r.worker_id), interval '1 minute'))
LIMIT %(n)s
