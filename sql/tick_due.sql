-- tick_due: lock the jobs whose next slot (or plan) is due, with what their policies need.
-- params: n int
-- returns: one row per job; `now` is the one instant that the whole batch is decided at; `excluded`: the rows of its
--          calendar (from_date, until_date, reason) that may still matter, in any zone
-- locks: FOR NO KEY UPDATE on those jobs, skipping locked ones: an edit or a delete in progress is decided next tick
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT j.id, clock.now, j.schedule, j.timezone, j.anchor_at, j.run_at, j.starts_at, j.ends_at, j.max_runs, j.run_count,
    nullif(j.decided_until, '-infinity') AS decided_until, j.jitter, j.overlap, j.max_buffer, j.misfire_after,
    j.catch_up, j.max_catch_up, j.catch_up_window, j.start_deadline, j.retry_within, coalesce(o.held, 0) AS held,
    coalesce(o.open, 0) AS open, o.newest, CASE WHEN ltrim(j.schedule) ILIKE '@after%%' THEN
        (SELECT max(f.finished_at) FROM pgsched.runs f WHERE f.job_id = j.id) END AS last_finished_at,
    (SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason)) FROM pgsched.job_calendars c
     WHERE c.job_id = j.id AND c.until_date >= (j.decided_until - interval '2 days')::date) AS excluded
FROM pgsched.jobs j CROSS JOIN clock
LEFT JOIN LATERAL (
    SELECT count(*) AS open, count(*) FILTER (WHERE r.state = 'waiting') AS held, max(r.id) AS newest
    FROM pgsched.runs r WHERE r.job_id = j.id AND r.phase < 3 AND r.origin <> 'backfill'
) o ON j.overlap <> 'allow' OR ltrim(j.schedule) ILIKE '@after%%'
WHERE NOT j.paused AND j.next_run_at <= clock.now
ORDER BY j.next_run_at
LIMIT %(n)s
FOR NO KEY UPDATE OF j SKIP LOCKED
