-- succeeded_slots: the slots of a job since an instant whose run has succeeded.
-- params: job_id bigint, start timestamptz
-- returns: scheduled_at
-- locks: none
SELECT scheduled_at FROM pgsched.runs
WHERE job_id = %(job_id)s AND scheduled_at >= %(start)s AND state = 'succeeded'
