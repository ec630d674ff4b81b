-- backfill_show: one backfill, or the newest ones, with how the runs stand that it started and history still holds.
-- params: id bigint (null: all), n int
-- returns: one row per backfill, newest first; state is running, finished, cancelled or failed; leading: somebody leads
-- locks: none
SELECT b.id, b.job_id, b.job, b.schedule, b.timezone, b.from_at, b.to_at, b.mode, b.max_active, b.reverse, b.priority,
    b.slots, b.considered, b.started, b.cursor_at, b.requested_by, b.created_at, b.cancelled_at, b.cancelled_by,
    b.finished_at, b.error,
    CASE WHEN b.error IS NOT NULL THEN 'failed' WHEN b.cancelled_at IS NOT NULL THEN 'cancelled'
         WHEN b.finished_at IS NOT NULL THEN 'finished' ELSE 'running' END AS state,
    r.open, r.succeeded, r.dead, r.cancelled, r.missed, clock_timestamp() AS now,
    EXISTS (SELECT FROM pgsched.leader WHERE resigned_at IS NULL
            AND seen_at > clock_timestamp() - interval '5 seconds') AS leading
FROM pgsched.backfills b CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE phase < 3) AS open, count(*) FILTER (WHERE r.state = 'succeeded') AS succeeded,
        count(*) FILTER (WHERE r.state = 'dead') AS dead, count(*) FILTER (WHERE r.state = 'cancelled') AS cancelled,
        count(*) FILTER (WHERE r.state = 'missed') AS missed
    FROM pgsched.runs r WHERE r.backfill_id = b.id
) r
WHERE %(id)s::bigint IS NULL OR b.id = %(id)s
ORDER BY b.id DESC LIMIT %(n)s
