-- status_next: the slots that come next.
-- params: n int
-- returns: (name, next_run_at, schedule, timezone, anchor_at, ends_at, now, excluded: the rows of the job's calendar as
--          (from_date, until_date, reason), null without)
-- locks: none
SELECT j.name, j.next_run_at, j.schedule, j.timezone, j.anchor_at, j.ends_at, clock_timestamp() AS now,
    (SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason) ORDER BY c.from_date)
     FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS excluded
FROM pgsched.jobs j WHERE NOT j.paused AND j.next_run_at IS NOT NULL ORDER BY j.next_run_at LIMIT %(n)s
