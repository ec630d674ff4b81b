-- web_job_runs: the newest runs of a job by slot, by the index over slots.
-- params: job text, before_id bigint (null: the newest; else those of slots before that run's), n int
-- returns: id, newest first
-- locks: none
SELECT r.id FROM pgsched.jobs j CROSS JOIN LATERAL (
    SELECT s.id FROM pgsched.runs s
    WHERE s.job_id = j.id AND (%(before_id)s::bigint IS NULL OR s.scheduled_at < (
        SELECT b.scheduled_at FROM pgsched.runs b WHERE b.id = %(before_id)s::bigint))
    ORDER BY s.job_id DESC, s.scheduled_at DESC LIMIT %(n)s
) r
WHERE j.name = %(job)s
