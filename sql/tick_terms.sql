-- tick_terms: what the schedules and policies of these jobs say, in full.
-- params: job_ids bigint[] (locked by tick_due)
-- returns: one row per job; `excluded`: the rows of its calendar (from_date, until_date, reason) that may still matter,
--          in any zone: what lies further ahead than a year counts when it is due, and of dates until the end of time
--          each tick would read all
-- locks: none
SELECT j.id, j.schedule, j.timezone, j.anchor_at, j.run_at, j.starts_at, j.ends_at, j.max_runs, j.run_count, j.jitter,
    j.overlap, j.max_buffer, j.misfire_after, j.catch_up, j.max_catch_up, j.catch_up_window, j.start_deadline,
    j.retry_within,
    (SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason)) FROM pgsched.job_calendars c
     WHERE c.job_id = j.id AND c.until_date >= (j.decided_until - interval '2 days')::date
       AND c.from_date <= (clock_timestamp() + interval '1 year')::date) AS excluded
FROM pgsched.jobs j
WHERE j.id = ANY(%(job_ids)s::bigint[])
