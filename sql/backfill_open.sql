-- backfill_open: lock the open backfills that may start a run now: fewer of theirs are open than max_active.
-- params: n int
-- returns: one row per backfill; active: its open runs; job_exists
-- locks: FOR UPDATE on those backfills, skipping one that somebody is cancelling
SELECT b.id, b.job_id, b.job, b.schedule, b.timezone, b.anchor_at, b.from_at, b.to_at, b.mode, b.max_active, b.reverse,
    b.priority, b.cursor_at, r.active, EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = b.job_id) AS job_exists
FROM pgsched.backfills b CROSS JOIN LATERAL (
    SELECT count(*) AS active FROM pgsched.runs r WHERE r.backfill_id = b.id AND r.phase < 3
) r
WHERE b.finished_at IS NULL AND r.active < b.max_active
ORDER BY b.id LIMIT %(n)s
FOR UPDATE OF b SKIP LOCKED
