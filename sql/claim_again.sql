-- claim_again: the claims that an earlier `claim` with this token made, when its answer was lost.
-- params: queue text, token uuid
-- returns: as claim
-- locks: none
SELECT r.id, r.token, r.attempt, r.max_attempts, r.queue, r.priority, r.kind, r.task, r.args, r.job_id,
    r.scheduled_at, r.available_at, r.owner, r.timeout, r.kill_after, r.backoff, r.backoff_base, r.backoff_max,
    r.backoff_jitter, r.options
FROM pgsched.runs r
WHERE phase = 2 AND state = 'running' AND queue = %(queue)s AND token = %(token)s
