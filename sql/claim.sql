-- claim: take up to `n` queued runs of one queue for this worker, in (priority, available_at, id) order.
-- params: queue text, n int, token uuid, worker_id bigint, lease_s float8, kinds text[] (every task of these
--         kinds), tasks text[] (python tasks this worker knows)
-- returns: one row per claim, unordered; none when there is nothing to do
-- A start deadline has done its duty once an attempt starts: retries and handed-back runs have none.
-- locks: row locks on the claimed runs, skipping those that others hold. The connection has enable_seqscan off:
--        stale statistics of a queue table would otherwise turn this into a scan of all history.
WITH picked AS MATERIALIZED (
    SELECT id FROM pgsched.runs
    WHERE phase = 2 AND state = 'queued' AND queue = %(queue)s
      AND (kind = ANY (%(kinds)s::text[]) OR kind = 'python' AND task = ANY (%(tasks)s::text[]))
      AND (expires_at IS NULL OR expires_at > clock_timestamp() OR started_at IS NOT NULL)
    ORDER BY priority, available_at, id
    LIMIT %(n)s FOR UPDATE SKIP LOCKED
)
UPDATE pgsched.runs r
SET state = 'running', token = %(token)s, worker_id = %(worker_id)s, attempt = r.attempt + 1,
    started_at = clock_timestamp(), lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s),
    expires_at = NULL
FROM picked WHERE r.id = picked.id
RETURNING r.id, r.token, r.attempt, r.max_attempts, r.queue, r.priority, r.kind, r.task, r.args, r.job_id,
    r.scheduled_at, r.available_at, r.owner, r.timeout, r.kill_after, r.backoff, r.backoff_base, r.backoff_max,
    r.backoff_jitter, r.options
