-- claim: take up to `n` queued runs of one queue for this worker, in (priority, available_at, id) order.
-- params: queue text, n int, token uuid, worker_id bigint, lease_s float8, kinds text[] (every task of these
--         kinds), tasks text[] (python tasks this worker knows), parallel arrays priorities smallint[],
--         after_ats timestamptz[], after_ids bigint[], until_ats timestamptz[], until_ids bigint[]: of each priority
--         the keys behind the first and up to the second, which are the claim cursor and 'infinity', or the other way
-- returns: one row per claim, unordered; none when there is nothing to do. Queue and kind are null where they are the
--          queue asked for and python: what each row says would be read for each
-- The cursor, each priority's last claimed key, spares the scan the dead entries of what was claimed before, which
-- nothing can remove while some session pins xmin. A run that became claimable in front of it is not seen: the worker
-- looks again without it (worker/claiming/claimer.py) or, where that takes long, up to it beside its other claims (worker/claiming/backlog_scan.py).
-- A start deadline has done its duty once an attempt starts; it stays in the row, because a claim that is given back
-- before that (settle: 'released') is bound by it again.
-- What is paused is not claimed: two questions to a table that is nearly always empty, asked once a statement.
-- locks: row locks on the claimed runs, skipping those that others hold
WITH picked AS MATERIALIZED (
    SELECT found.id
    FROM unnest(%(priorities)s::text::smallint[], %(after_ats)s::text::timestamptz[], %(after_ids)s::text::bigint[],
                %(until_ats)s::text::timestamptz[], %(until_ids)s::text::bigint[])
        AS c(priority, after_at, after_id, until_at, until_id)
    CROSS JOIN LATERAL (
        SELECT id FROM pgsched.runs
        WHERE phase = 2 AND state = 'queued' AND queue = %(queue)s AND priority = c.priority
          AND (available_at, id) > (c.after_at, c.after_id) AND (available_at, id) <= (c.until_at, c.until_id)
          AND (kind = ANY (%(kinds)s::text[]) OR kind = 'python' AND task = ANY (%(tasks)s::text[]))
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
RETURNING r.id, r.attempt, r.max_attempts, nullif(r.queue, %(queue)s), r.priority, nullif(r.kind, 'python'), r.task, r.args,
    r.job_id, r.scheduled_at, r.available_at::text, r.owner, r.timeout, r.kill_after, r.backoff, r.backoff_base, r.backoff_max, r.backoff_jitter,
    r.options
