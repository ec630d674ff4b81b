-- web_strips: the newest slots of some jobs, of each by its index over slots.
-- params: ids text (an array of bigint), n int (of each job)
-- returns: (job_id, id, state, scheduled_at, started_at, finished_at, late_s: null unless it started late, reason,
--          covers_count), oldest first
-- locks: none
SELECT r.job_id, r.id, r.state, r.scheduled_at, r.started_at, r.finished_at, r.covers_count,
    coalesce(r.error, r.reason) AS reason,
    CASE WHEN r.origin = 'schedule' AND r.attempt = 1 AND r.started_at > r.scheduled_at + j.jitter + j.misfire_after
         THEN extract(epoch FROM r.started_at - r.scheduled_at)::float8 END AS late_s
FROM pgsched.jobs j CROSS JOIN LATERAL (
    SELECT * FROM pgsched.runs s WHERE s.job_id = j.id ORDER BY s.job_id DESC, s.scheduled_at DESC LIMIT %(n)s
) r
WHERE j.id = ANY (%(ids)s::text::bigint[])
ORDER BY r.job_id, r.scheduled_at
