-- explain_row: the run that a job has at an instant, whole second for whole second.
-- params: job_id bigint, at timestamptz
-- returns: scheduled_at of the first such row
-- locks: none
SELECT scheduled_at FROM pgsched.runs
WHERE job_id = %(job_id)s AND scheduled_at >= %(at)s AND scheduled_at < %(at)s + CASE
    WHEN date_trunc('second', %(at)s::timestamptz) = %(at)s THEN interval '1 second' ELSE interval '1 microsecond' END
ORDER BY scheduled_at LIMIT 1
