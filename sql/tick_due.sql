-- tick_due: lock the jobs whose next slot (or plan) is due. What only others' transactions can change beside these rows
-- (unfinished runs) is read by a later statement: this one's snapshot is older than its locks.
-- params: n int
-- returns: (id, now, mark, anchor, dated, shape). `now` is the one instant that the whole batch is decided at; `mark`
--          the high-water mark (null: a job that runs once and was not decided yet); `anchor`: where it began, if its
--          slots count from there; `dated`: it has excluded dates. Jobs of one `shape` have the same schedule and
--          policies: tick_terms has to be asked for one of them only
-- locks: FOR NO KEY UPDATE on those jobs, skipping locked ones: an edit or a delete in progress is decided next tick
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT j.id, (SELECT now FROM clock) AS now, CASE WHEN j.decided_until <> '-infinity' THEN j.decided_until
        WHEN j.schedule IS NOT NULL THEN j.anchor_at END AS mark,
    CASE WHEN j.schedule ~* '@[ea]' THEN j.anchor_at END AS anchor,
    EXISTS (SELECT FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS dated,
    ROW(j.schedule, j.timezone, j.run_at, j.ends_at, j.max_runs, CASE WHEN j.max_runs IS NOT NULL THEN j.run_count END,
        j.jitter, j.overlap, j.max_buffer, j.retry_within, j.misfire_after, j.catch_up, j.max_catch_up, j.catch_up_window, j.start_deadline)::text AS shape
FROM pgsched.jobs j
-- a sub-select and no join: only so is it where the scan of the index ends, and what is not due is not read
WHERE NOT j.paused AND j.next_run_at <= (SELECT now FROM clock)
ORDER BY j.next_run_at
LIMIT %(n)s
FOR NO KEY UPDATE OF j SKIP LOCKED
