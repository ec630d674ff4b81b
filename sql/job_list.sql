-- job_list: jobs by name, each with how its newest run stands.
-- params: after text (the last name of the page before; null: the first page), queue text, state text (paused, error,
--         done or active; null: any), n int (null: all)
-- returns: one row per job; `excluded`: the rows of its calendar (from_date, until_date, reason), null without
-- locks: none
WITH listed AS (
    SELECT j.*, CASE WHEN j.paused THEN 'paused' WHEN j.error IS NOT NULL THEN 'error'
                     WHEN j.next_run_at IS NULL THEN 'done' ELSE 'active' END AS state
    FROM pgsched.jobs j
)
SELECT j.id, j.name, j.kind, j.task, j.queue, j.schedule, j.timezone, j.run_at, j.ends_at, j.anchor_at, j.updated_at, j.state,
    j.next_run_at, j.run_count, j.error, j.declared_by,
    r.id AS last_run_id, r.state AS last_run_state, r.scheduled_at AS last_run_at,
    (SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason) ORDER BY c.from_date)
     FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS excluded,
    clock_timestamp() AS now
FROM listed j LEFT JOIN LATERAL (
    SELECT id, state, scheduled_at FROM pgsched.runs WHERE job_id = j.id ORDER BY scheduled_at DESC LIMIT 1
) r ON true
WHERE (%(after)s::text IS NULL OR j.name > %(after)s) AND (%(queue)s::text IS NULL OR j.queue = %(queue)s)
  AND (%(state)s::text IS NULL OR j.state = %(state)s)
ORDER BY j.name LIMIT %(n)s
