-- tick_open: count the unfinished runs of jobs that tick_due has locked. A statement of its own, so that it sees what
-- pgsched.trigger committed under the lock before us. Backfills do not count.
-- params: job_ids bigint[]
-- returns: (job_id, open, held, in_turn, newest) of the jobs that have any; what only limits hold is not held, and late
--          slots that are caught up one after the other are in_turn, not held
-- locks: none
SELECT r.job_id, count(*) AS open,
    count(*) FILTER (WHERE r.state = 'waiting' AND r.ready_at IS NULL AND NOT pgsched.waits_in_turn(r.reason)) AS held,
    count(*) FILTER (WHERE r.state = 'waiting' AND pgsched.waits_in_turn(r.reason)) AS in_turn, max(r.id) AS newest
FROM pgsched.runs r
WHERE r.job_id = ANY(%(job_ids)s::bigint[]) AND r.phase < 3 AND r.origin <> 'backfill'
GROUP BY r.job_id
