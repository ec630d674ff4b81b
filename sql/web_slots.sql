-- web_slots: the slots of a job that have a row in a stretch of time, the newest n; rows that stand for several slots
-- are found by the newest of these.
-- params: job_id bigint, from_at timestamptz, until_at timestamptz, n int
-- returns: (id, state, origin, scheduled_at, started_at, finished_at, attempt, max_attempts, late_s: null unless it
--          started late, reason, error, covers_from, covers_until, covers_count), newest first
-- locks: none
SELECT r.id, r.state, r.origin, r.scheduled_at, r.started_at, r.finished_at, r.attempt, r.max_attempts, r.reason, r.error,
    r.covers_from, r.covers_until, r.covers_count,
    CASE WHEN r.origin = 'schedule' AND r.attempt = 1
              AND r.started_at > r.scheduled_at + coalesce(j.jitter, '0') + coalesce(j.misfire_after, '60 seconds')
         THEN extract(epoch FROM r.started_at - r.scheduled_at)::float8 END AS late_s
FROM pgsched.runs r LEFT JOIN pgsched.jobs j ON j.id = r.job_id
WHERE r.job_id = %(job_id)s AND r.scheduled_at >= %(from_at)s AND r.scheduled_at < %(until_at)s
ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT %(n)s
