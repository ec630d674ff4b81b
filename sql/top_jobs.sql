-- top_jobs: the jobs that somebody may want to see now: those in error, then by next slot, then the paused, then those
-- that are done. Each with its newest slot.
-- params: n int, find text (a part of the name, in any case of letters; null: all)
-- returns: (id, name, schedule, timezone, anchor_at, ends_at, queue, state: error, active, paused or done, error,
--          next_run_at, run_id, run_state, late_s: from slot to start, of first attempts, took_s, excluded: as in
--          status_next, now)
-- locks: none
WITH found AS (
    (SELECT id, 1 AS place FROM pgsched.jobs
     WHERE NOT paused AND error IS NOT NULL
       AND (%(find)s::text IS NULL OR strpos(lower(name), lower(%(find)s::text)) > 0) ORDER BY name LIMIT %(n)s)
    UNION ALL
    (SELECT id, 2 FROM pgsched.jobs
     WHERE NOT paused AND error IS NULL AND next_run_at IS NOT NULL
       AND (%(find)s::text IS NULL OR strpos(lower(name), lower(%(find)s::text)) > 0) ORDER BY next_run_at LIMIT %(n)s)
    UNION ALL
    (SELECT id, 3 FROM pgsched.jobs
     WHERE paused AND (%(find)s::text IS NULL OR strpos(lower(name), lower(%(find)s::text)) > 0)
     ORDER BY name LIMIT %(n)s)
    UNION ALL
    (SELECT id, 4 FROM pgsched.jobs
     WHERE NOT paused AND error IS NULL AND next_run_at IS NULL
       AND (%(find)s::text IS NULL OR strpos(lower(name), lower(%(find)s::text)) > 0) ORDER BY name LIMIT %(n)s)
)
SELECT j.id, j.name, j.schedule, j.timezone, j.anchor_at, j.ends_at, j.queue,
    (ARRAY['error', 'active', 'paused', 'done'])[found.place] AS state, j.error, j.next_run_at,
    r.id AS run_id, r.state AS run_state,
    CASE WHEN r.origin = 'schedule' AND r.attempt = 1
         THEN extract(epoch FROM r.started_at - r.scheduled_at)::float8 END AS late_s,
    CASE WHEN r.finished_at IS NOT NULL THEN extract(epoch FROM r.finished_at - r.started_at)::float8 END AS took_s,
    (SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason) ORDER BY c.from_date)
     FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS excluded, clock_timestamp() AS now
FROM found JOIN pgsched.jobs j ON j.id = found.id LEFT JOIN LATERAL (
    SELECT id, state, origin, attempt, scheduled_at, started_at, finished_at FROM pgsched.runs
    WHERE job_id = j.id ORDER BY scheduled_at DESC LIMIT 1
) r ON true
ORDER BY found.place, CASE WHEN found.place = 2 THEN j.next_run_at END, j.name LIMIT %(n)s
