-- rollup_read: the figures of a stretch of time, by minute or hour and outcome.
-- params: width text, from_at timestamptz, job_id bigint (0: those of all)
-- returns: (from_at, state, runs, started, retried, late_max_s, durations, waits, lates bigint[] (pgsched.bin_of)),
--          oldest first
-- locks: none
SELECT from_at, state, runs, started, retried, late_max_s, durations, waits, lates FROM pgsched.rollups
WHERE width = %(width)s AND from_at >= %(from_at)s AND job_id = %(job_id)s ORDER BY from_at
