-- passed_over_take: take out stretches of slots that an edit or a resume passed over. The rows that tell of them are
-- inserted in the same transaction.
-- params: n int
-- returns: (job_id, schedule (null: the job runs once, and its slot is until_at), timezone, anchor_at, after_at,
--          until_at, state, reason, known: the instants in the stretch that the job has a row for), oldest first
-- locks: those stretches, skipping locked ones
WITH taken AS (
    DELETE FROM pgsched.passed_over WHERE id IN (
        SELECT id FROM pgsched.passed_over ORDER BY id LIMIT %(n)s FOR UPDATE SKIP LOCKED
    )
    RETURNING id, job_id, schedule, timezone, anchor_at, after_at, until_at, state, reason
)
SELECT job_id, schedule, timezone, anchor_at, after_at, until_at, state, reason,
    ARRAY(SELECT r.scheduled_at FROM pgsched.runs r
          WHERE r.job_id = t.job_id AND r.scheduled_at > t.after_at AND r.scheduled_at <= t.until_at) AS known
FROM taken t ORDER BY id
