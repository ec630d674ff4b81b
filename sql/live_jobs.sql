-- live_jobs: one line a job for a live view, over its runs since an instant.
-- params: since timestamptz, n int
-- returns: (name, kind, schedule, paused, error, next_run_at, ok, failed, open, last_state, p50_s, worst_s): lateness is
--          from the slot to the start of the last attempt, of first attempts only
-- locks: none
SELECT j.name, j.kind, coalesce(j.schedule, 'once') AS schedule, j.paused, j.error, j.next_run_at,
    s.ok, s.failed, s.open, s.last_state, s.p50_s, s.worst_s
FROM pgsched.jobs j CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE r.state = 'succeeded') AS ok,
        count(*) FILTER (WHERE r.state IN ('dead', 'missed', 'skipped')) AS failed,
        count(*) FILTER (WHERE r.phase < 3) AS open,
        (array_agg(r.state ORDER BY r.scheduled_at DESC))[1] AS last_state,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM r.started_at - r.scheduled_at))
            FILTER (WHERE r.attempt = 1) AS p50_s,
        max(extract(epoch FROM r.started_at - r.scheduled_at)) FILTER (WHERE r.attempt = 1) AS worst_s
    FROM pgsched.runs r WHERE r.job_id = j.id AND r.scheduled_at >= %(since)s
) s
ORDER BY j.name LIMIT %(n)s
