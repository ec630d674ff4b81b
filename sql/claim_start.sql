-- claim_start: as `claim`, from the start of the queue on: no claim cursor, and no scan for each priority. The plan is
-- smaller by as much as a worker that is alone with one run notices.
-- params: queue text, n int, token uuid, worker_id bigint, lease_s float8, kinds text[], tasks text[]
-- returns: as claim
-- locks: row locks on the claimed runs, skipping those that others hold
WITH picked AS MATERIALIZED (
    SELECT id FROM pgsched.runs
    WHERE phase = 2 AND state = 'queued' AND queue = %(queue)s
      AND (kind = ANY (%(kinds)s::text[]) OR kind = 'python' AND task = ANY (%(tasks)s::text[]))
      AND task <> ALL (ARRAY(SELECT p.name FROM pgsched.pauses p WHERE p.what = 'task'
                             AND coalesce(p.resume_at > clock_timestamp(), true)))
      AND (expires_at IS NULL OR expires_at > clock_timestamp() OR started_at IS NOT NULL)
      AND NOT EXISTS (SELECT FROM pgsched.pauses p
                      WHERE (p.what, p.name) IN (('all', ''), ('queue', %(queue)s), ('limit', %(queue)s))
                        AND coalesce(p.resume_at > clock_timestamp(), true))
    ORDER BY priority, available_at, id
    LIMIT %(n)s FOR UPDATE SKIP LOCKED
)
UPDATE pgsched.runs r
SET state = 'running', token = %(token)s, worker_id = %(worker_id)s, attempt = r.attempt + 1,
    started_at = clock_timestamp(), lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
WHERE r.id = ANY (ARRAY(SELECT id FROM picked))
RETURNING r.id, r.attempt, r.max_attempts, nullif(r.queue, %(queue)s), r.priority, nullif(r.kind, 'python'), r.task, r.args,
    r.job_id, r.scheduled_at, r.available_at::text, r.owner, r.timeout, r.kill_after, r.backoff, r.backoff_base, r.backoff_max, r.backoff_jitter,
    r.options
