-- explain_passed_over: the stretch that was passed over and that the leader has not recorded yet, if a slot lies in it.
-- params: job_id bigint, slot timestamptz
-- returns: (state, reason), or no row
-- locks: none
SELECT state, reason FROM pgsched.passed_over
WHERE job_id = %(job_id)s AND after_at < %(slot)s AND until_at >= %(slot)s ORDER BY id LIMIT 1
