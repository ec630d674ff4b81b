-- passed_over_take: take out stretches of slots that an edit or a resume passed over. The rows that tell of them are
-- inserted in the same transaction.
-- params: n int
-- returns: (job_id, schedule (null: the job runs once, and its slot is until_at), timezone, anchor_at, after_at,
--          until_at, state, reason)
-- locks: those stretches, skipping locked ones
DELETE FROM pgsched.passed_over WHERE id IN (
    SELECT id FROM pgsched.passed_over ORDER BY id LIMIT %(n)s FOR UPDATE SKIP LOCKED
)
RETURNING job_id, schedule, timezone, anchor_at, after_at, until_at, state, reason
