-- plans_again: let jobs be planned again whose next slot is not the one that they were told of; one that was planned
-- meanwhile is left alone.
-- params: parallel arrays job_ids bigint[], next_run_ats timestamptz[] (as they were read)
-- returns: id of each; one that somebody has locked is not among them
-- locks: those jobs, skipping locked ones
WITH free AS MATERIALIZED (
    SELECT j.id FROM unnest(%(job_ids)s::bigint[], %(next_run_ats)s::timestamptz[]) AS s(job_id, next_run_at)
    JOIN pgsched.jobs j ON j.id = s.job_id AND j.next_run_at = s.next_run_at
    FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE pgsched.jobs j SET next_run_at = clock_timestamp() FROM free WHERE j.id = free.id
RETURNING j.id
