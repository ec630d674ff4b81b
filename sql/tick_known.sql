-- tick_known: which of these slots have their row already.
-- params: parallel arrays job_ids bigint[], slots timestamptz[]
-- returns: (job_id, slot)
-- locks: none
SELECT s.job_id, s.slot
FROM unnest(%(job_ids)s::bigint[], %(slots)s::timestamptz[]) AS s(job_id, slot)
JOIN pgsched.runs r ON r.job_id = s.job_id AND r.scheduled_at = s.slot
