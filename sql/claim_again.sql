-- claim_again: the claims that an earlier `claim` with this token made, when its answer was lost.
-- params: queue text, token uuid
-- returns: as claim
-- locks: none
SELECT id, attempt, max_attempts, nullif(queue, %(queue)s), priority, nullif(kind, 'python'), task, args, job_id,
    scheduled_at, available_at::text, owner, timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter, options
FROM pgsched.runs
WHERE phase = 2 AND state = 'running' AND queue = %(queue)s AND token = %(token)s
