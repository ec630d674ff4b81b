-- Claims: a worker takes queued runs.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- fragment: claim_columns
-- What a claim says of a run r. Queue and kind are null where they are the queue asked for and task: what each row says
-- would be read for each.
r.id, r.attempt, r.max_attempts, nullif(r.queue, %(queue)s) AS queue, r.priority, nullif(r.kind, 'task') AS kind, r.task,
    r.args, r.job_id, r.scheduled_at, r.available_at::text, r.owner, r.timeout, r.kill_after, r.backoff, r.backoff_base,
    r.backoff_max, r.backoff_jitter, r.options


-- name: claim
-- take up to `n` queued runs of one queue for this worker, in (priority, available_at, id) order.
-- params: queue text, n int, token uuid, worker_id bigint, lease_s float8, kinds text[] (every task of these
--         kinds), tasks text[] (the registered tasks that this worker knows), parallel arrays priorities smallint[],
--         after_ats timestamptz[], after_ids bigint[]: the claim cursor of each priority
-- returns: one row per claim, unordered; none when there is nothing to do
-- The cursor, each priority's last claimed key, spares the scan the dead entries of what was claimed before, which
-- nothing can remove while some session pins xmin. A run that became claimable in front of it is not seen: the worker
-- scans again without it (worker/claiming/cursor.py).
-- A start deadline has done its duty once an attempt starts; it stays in the row, because a claim that is given back
-- before that (settle: 'released') is bound by it again.
-- What is paused is not claimed: two questions to a table that is nearly always empty, asked once a statement.
-- locks: row locks on the claimed runs, skipping those that others hold
WITH picked AS MATERIALIZED (
    SELECT found.id
    FROM unnest(%(priorities)s::text::smallint[], %(after_ats)s::text::timestamptz[], %(after_ids)s::text::bigint[])
        AS c(priority, after_at, after_id)
    CROSS JOIN LATERAL (
        SELECT id FROM pgsched.runs
        WHERE phase = 2 /* claimable */ AND state = 'queued' AND queue = %(queue)s AND priority = c.priority
          AND (available_at, id) > (c.after_at, c.after_id)
          AND (kind = ANY (%(kinds)s::text[]) OR kind = 'task' AND task = ANY (%(tasks)s::text[]))
          AND task <> ALL (ARRAY(SELECT p.name FROM pgsched.pauses p WHERE p.what = 'task'
                                 AND coalesce(p.resume_at > clock_timestamp(), true)))
          AND (expires_at IS NULL OR expires_at > clock_timestamp() OR started_at IS NOT NULL)
        ORDER BY available_at, id
        LIMIT %(n)s FOR UPDATE SKIP LOCKED
    ) found
    WHERE NOT EXISTS (SELECT FROM pgsched.pauses p
                      WHERE (p.what, p.name) IN (('all', ''), ('queue', %(queue)s), ('limit', %(queue)s))
                        AND coalesce(p.resume_at > clock_timestamp(), true))
    LIMIT %(n)s
)
UPDATE pgsched.runs r
SET state = 'running', token = %(token)s, worker_id = %(worker_id)s, attempt = r.attempt + 1,
    started_at = clock_timestamp(), lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
WHERE r.id = ANY (ARRAY(SELECT id FROM picked))
RETURNING
-- include: claim_columns


-- name: claim_unconfirmed
-- the claims that an earlier `claim` with this token made, when its answer was lost.
-- params: queue text, token uuid
-- returns: as claim
-- locks: none
SELECT
-- include: claim_columns
FROM pgsched.runs r
WHERE phase = 2 /* claimable */ AND state = 'running' AND queue = %(queue)s AND token = %(token)s


-- name: claim_start
-- as `claim`, from the start of the queue on: no claim cursor, and no scan for each priority. The plan is
-- smaller by as much as a worker that is alone with one run notices.
-- params: queue text, n int, token uuid, worker_id bigint, lease_s float8, kinds text[], tasks text[]
-- returns: as claim
-- locks: row locks on the claimed runs, skipping those that others hold
WITH picked AS MATERIALIZED (
    SELECT id FROM pgsched.runs
    WHERE phase = 2 /* claimable */ AND state = 'queued' AND queue = %(queue)s
      AND (kind = ANY (%(kinds)s::text[]) OR kind = 'task' AND task = ANY (%(tasks)s::text[]))
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
RETURNING
-- include: claim_columns


-- name: claimable_queues
-- the queues that have open runs, found by skipping through the claim index (one probe a queue).
-- params: asleep_s float8: for so long, whoever makes a run is to notify the workers, because this one may be asleep
--         (null: leave that as it is); look boolean: whether to look for queues; known text[]: but not for these
-- returns: (queue text, sure_s float8); first a row without a queue, which says for how many seconds it will be so
--          (null: not asked), then one for each queue
-- What was claimed of a queue leaves dead entries, which each look reads again while some session pins xmin: so those of
-- the known queues are gone round, in the gaps between their names.
-- locks: none
WITH RECURSIVE asleep AS MATERIALIZED (
    SELECT CASE WHEN %(asleep_s)s::float8 IS NOT NULL THEN pgsched.workers_asleep(%(asleep_s)s::float8) END AS sure_s
), q AS (
    SELECT lag(k, 1, '') OVER (ORDER BY k NULLS LAST) AS queue, k AS upper, true AS is_known
    FROM unnest(%(known)s::text::text[] || NULL::text) k WHERE %(look)s
    UNION ALL
    SELECT next.queue, q.upper, false
    FROM q CROSS JOIN LATERAL (
        (SELECT r.queue FROM pgsched.runs r WHERE r.phase = 2 /* claimable */ AND r.queue > q.queue AND r.queue < q.upper
         ORDER BY r.queue LIMIT 1)
        UNION ALL
        (SELECT r.queue FROM pgsched.runs r WHERE q.upper IS NULL AND r.phase = 2 /* claimable */ AND r.queue > q.queue
         ORDER BY r.queue LIMIT 1)
    ) next
)
SELECT NULL AS queue, sure_s FROM asleep
UNION ALL
SELECT queue, NULL FROM q WHERE NOT is_known
