-- backfill_rows: what is known of some slots of a job: their own rows, and the rows that stand for a stretch of slots.
-- A stretch's row has the newest of its slots, so those of the given slots are among them or soon after them.
-- params: job_id bigint, slots timestamptz[] (not empty)
-- returns: (id, scheduled_at, state, started_at, covers_from, covers_until, covers_state: what the row said of its stretch
--          before it was revived for its own slot)
-- locks: none
WITH ends AS MATERIALIZED (SELECT min(s) AS first, max(s) AS last FROM unnest(%(slots)s::timestamptz[]) AS s)
SELECT r.id, r.scheduled_at, r.state, r.started_at, r.covers_from, r.covers_until, r.covers_state
FROM ends JOIN pgsched.runs r ON r.job_id = %(job_id)s AND r.scheduled_at BETWEEN ends.first AND ends.last
WHERE r.covers_from IS NOT NULL OR r.scheduled_at = ANY (%(slots)s::timestamptz[])
UNION ALL
SELECT r.id, r.scheduled_at, r.state, r.started_at, r.covers_from, r.covers_until, r.covers_state
FROM ends CROSS JOIN LATERAL (
    SELECT * FROM pgsched.runs WHERE job_id = %(job_id)s AND scheduled_at > ends.last ORDER BY scheduled_at LIMIT 1000
) r
WHERE r.covers_from <= ends.last
