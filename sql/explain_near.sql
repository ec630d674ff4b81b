-- explain_near: the rows of a job next to an instant, for jobs whose schedule cannot tell its slots (@after, deleted).
-- params: job_id bigint, at timestamptz (null: the newest)
-- returns: scheduled_at of at most two rows: the last not after it, the first after it; and the slots of a job that
--          runs once that it had before an edit, where their rows are still to be made
-- locks: none
(SELECT scheduled_at FROM pgsched.runs
 WHERE job_id = %(job_id)s AND scheduled_at <= coalesce(%(at)s::timestamptz, clock_timestamp())
 ORDER BY scheduled_at DESC LIMIT 1)
UNION ALL
(SELECT scheduled_at FROM pgsched.runs WHERE job_id = %(job_id)s AND scheduled_at > %(at)s::timestamptz
 ORDER BY scheduled_at LIMIT 1)
UNION ALL
(SELECT until_at FROM pgsched.passed_over WHERE job_id = %(job_id)s AND schedule IS NULL)
