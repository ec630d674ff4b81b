-- tick_finished: when the last run of a job ended, for @after. Looks at the newest 100 rows of the job and not at its
-- whole history: of an older run that somebody revived, only that it is unfinished matters.
-- params: job_ids bigint[]
-- returns: (job_id, last_finished_at)
-- locks: none
SELECT s.job_id, (
    SELECT max(r.finished_at) FROM (
        SELECT finished_at FROM pgsched.runs WHERE job_id = s.job_id ORDER BY scheduled_at DESC LIMIT 100
    ) r) AS last_finished_at
FROM unnest(%(job_ids)s::bigint[]) AS s(job_id)
