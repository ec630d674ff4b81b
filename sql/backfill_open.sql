-- backfill_open: lock some open backfills that something can be done for now: nothing of theirs is open, or less than
-- max_active and slots are left. One that only waits for its last runs takes nobody's place. They take turns.
-- params: n int, after bigint (the id that was looked at last)
-- returns: one row per backfill; active: its open runs; slots: null where nobody has counted them; job_exists
-- locks: FOR UPDATE on those backfills, skipping one that somebody is cancelling
SELECT b.id, b.job_id, b.job, b.schedule, b.timezone, b.anchor_at, b.from_at, b.to_at, b.mode, b.max_active, b.reverse,
    b.priority, b.slots, b.cursor_at, r.active,
    EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = b.job_id) AS job_exists
FROM pgsched.backfills b CROSS JOIN LATERAL (
    SELECT count(*) AS active FROM pgsched.runs r WHERE r.backfill_id = b.id AND r.phase < 3
) r
WHERE b.finished_at IS NULL
  AND (r.active = 0 OR r.active < b.max_active AND coalesce(b.considered < b.slots, true))
ORDER BY b.id <= %(after)s, b.id LIMIT %(n)s
FOR UPDATE OF b SKIP LOCKED
