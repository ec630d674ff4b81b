-- tick_due: lock the jobs whose next slot (or plan) is due. What only others' transactions can change beside these rows
-- (unfinished runs) is read by a later statement: this one's snapshot is older than its locks.
-- params: n int, lead_s float8: if nothing is due, jobs that are due within so many seconds, all at one instant
-- returns: (id, now, mark, anchor, dated, shape). `now` is the one instant that the whole batch is decided at, which
--          lies ahead of the clock if nothing is due before; `mark`:
--          its slots lie after this, which is the high-water mark or what is right before its start (null: a job that
--          runs once and was not decided yet); `anchor`: where it began, if its slots count from there; `dated`: it has
--          excluded dates. Jobs of one `shape` have the same schedule and policies: tick_terms has to be asked for one
--          of them only
-- locks: FOR NO KEY UPDATE on those jobs, skipping locked ones: an edit or a delete in progress is decided next tick
WITH clock AS MATERIALIZED (
    SELECT CASE WHEN at BETWEEN now AND now + make_interval(secs => %(lead_s)s) THEN at ELSE now END AS now
    FROM (SELECT clock_timestamp() AS now,
                 (SELECT min(next_run_at) FROM pgsched.jobs WHERE NOT paused AND next_run_at IS NOT NULL) AS at) c
)
SELECT j.id, (SELECT now FROM clock) AS now,
    CASE WHEN j.decided_until <> '-infinity' THEN greatest(j.decided_until, j.starts_at - interval '1 microsecond')
         WHEN j.schedule IS NOT NULL THEN j.anchor_at END AS mark,
    CASE WHEN j.schedule ~* '@(every|after)' THEN j.anchor_at END AS anchor,
    EXISTS (SELECT FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS dated,
    ROW(j.schedule, j.timezone, j.run_at, j.ends_at, j.max_runs, CASE WHEN j.max_runs IS NOT NULL THEN j.run_count END,
        j.jitter, j.overlap, j.max_buffer, j.retry_within, j.misfire_after, j.catch_up, j.max_catch_up,
        j.catch_up_window, j.start_deadline)::text AS shape
FROM pgsched.jobs j
-- a sub-select and no join: only so is it where the scan of the index ends, and what is not due is not read
WHERE NOT j.paused AND j.next_run_at <= (SELECT now FROM clock)
ORDER BY j.next_run_at
LIMIT %(n)s
FOR NO KEY UPDATE OF j SKIP LOCKED
