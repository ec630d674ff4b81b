-- rollup_hours: the hours of which there is something to say of a job.
-- params: job_id bigint (not 0), from_at timestamptz
-- returns: (from_at), in order; by the index of jobs alone
-- locks: none
SELECT DISTINCT from_at FROM pgsched.rollups
WHERE job_id = %(job_id)s AND job_id <> 0 AND from_at >= %(from_at)s ORDER BY from_at
