-- expire: what may no longer start ends. A run whose start deadline passed is missed; a slot that waited for an
-- earlier run (retry_within) in vain is skipped, as it would have been without waiting. The earlier bound counts. What
-- has started once is not bound any more.
-- params: n int
-- returns: nothing; the number of rows says how many
-- locks: FOR UPDATE on those runs, skipping locked ones
WITH late AS MATERIALIZED (
    -- the clock is asked once, here and below, and bounds the scan: all bounds that are to come would be read else
    SELECT id FROM pgsched.runs
    WHERE phase < 3 AND expires_at <= (SELECT clock_timestamp()) AND state <> 'running' AND started_at IS NULL
    ORDER BY expires_at LIMIT %(n)s FOR UPDATE SKIP LOCKED
), in_vain AS MATERIALIZED (
    SELECT id FROM pgsched.runs
    WHERE phase = 0 AND held_until <= (SELECT clock_timestamp()) AND started_at IS NULL
      AND held_until < coalesce(expires_at, 'infinity')
    ORDER BY held_until LIMIT %(n)s FOR UPDATE SKIP LOCKED
), ended AS (
    SELECT coalesce(late.id, in_vain.id) AS id, in_vain.id IS NOT NULL AS in_vain
    FROM late FULL JOIN in_vain ON in_vain.id = late.id
)
UPDATE pgsched.runs r SET state = CASE WHEN ended.in_vain THEN 'skipped' ELSE 'missed' END,
    finished_at = clock_timestamp(),
    reason = CASE WHEN ended.in_vain THEN format('%%s, nor by %%s (retry_within)', r.reason, r.held_until)
                  ELSE format('start_deadline passed: not started by %%s', r.expires_at) END
FROM ended WHERE r.id = ended.id
