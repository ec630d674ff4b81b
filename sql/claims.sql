-- Claims: a worker takes queued runs.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- fragment: claim_columns
-- The columns that a claim returns of a run r. Queue and kind are null if they are the requested queue and `task`,
-- because otherwise each row's value would have to be read. Its outside name is for executors that send it to other
-- systems, the job's name for SQL.
r.id, r.attempt, r.max_attempts, nullif(r.queue, %(queue)s) AS queue, r.priority, nullif(r.kind, 'task') AS kind, r.task,
    r.args, r.job_id, r.scheduled_at, r.available_at::text, r.owner, r.timeout, r.kill_after, r.backoff, r.backoff_base,
    r.backoff_max, r.backoff_jitter, r.options, r.suspect,
    CASE WHEN r.kind = 'http' OR %(named)s THEN pgsched.outside_name(r.id, r.created_at, r.reruns) END AS outside_name,
    r.interval_start, r.slot_zone, CASE WHEN r.kind = 'sql' AND r.job_id IS NOT NULL THEN pgsched.name_of_job(r.job_id) END AS job


-- fragment: claim_found
-- The columns that a claim reads of a run before it takes the run. The note is 0 for nearly all runs. Otherwise it is
-- the bytes of large arguments times 4, + 1 if this is the run's only attempt, + 2 if it is suspect (see
-- pgsched.claim_limit). Compressed arguments may be a hundred times as large; none has more than 1 MiB.
id, CASE WHEN pg_column_size(args) <= 4096 AND pg_column_compression(args) IS NULL THEN 0
         WHEN pg_column_compression(args) IS NULL THEN least(pg_column_size(args), 1048576)
         ELSE least(100 * pg_column_size(args), 1048576) END * 4
    + CASE WHEN max_attempts = 1 THEN 1 ELSE 0 END + CASE WHEN suspect THEN 2 ELSE 0 END AS note


-- fragment: claim_update
-- Take all runs that were found, with three exceptions: runs that count as begun once they are claimed, if there is no
-- free place for them; other runs beside a suspect one; and arguments beyond the bytes that a worker should hold.
UPDATE pgsched.runs r
SET state = 'running', token = %(token)s, worker_id = %(worker_id)s, attempt = r.attempt + 1, begun = NULL,
    started_at = clock_timestamp(), lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
WHERE r.id = ANY (ARRAY(SELECT id FROM picked LIMIT pgsched.claim_limit(
    (SELECT array_agg(note) FROM picked HAVING max(note) > 0), %(places)s::int)))
RETURNING


-- name: claim
-- take up to `n` queued runs of one queue for this worker, in (priority, available_at, id) order.
-- params: queue text, n int, places int (how many places of the worker are free now), token uuid, worker_id bigint,
--         lease_s float8, named boolean (whether to return the outside name of every run), kinds text[] (all tasks of
--         these kinds), tasks text[] (the registered tasks that this worker knows), parallel arrays priorities
--         smallint[], after_ats timestamptz[], after_ids bigint[]: the claim cursor of each priority
-- returns: one row per claim, unordered; none if there is nothing to claim
-- The cursor is the last claimed key of each priority. It spares the scan the dead entries of earlier claims, which
-- vacuum cannot remove while a session pins xmin. A run that became claimable before the cursor is not seen: the worker
-- scans again without it (worker/claiming/cursor.py).
-- A start deadline no longer matters once an attempt starts. It stays in the row, because it applies again to a claim
-- that is given back before that (settle: 'released').
-- Paused queues and tasks are not claimed: two lookups per statement in a table that is nearly always empty.
-- locks: row locks on the claimed runs, skipping locked ones
WITH picked AS MATERIALIZED (
    SELECT found.id, found.note
    FROM unnest(%(priorities)s::text::smallint[], %(after_ats)s::text::timestamptz[], %(after_ids)s::text::bigint[])
        AS c(priority, after_at, after_id)
    CROSS JOIN LATERAL (
        SELECT
        -- include: claim_found
        FROM pgsched.runs
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
-- include: claim_update
-- include: claim_columns


-- name: claim_many
-- claim like `claim_start` from several queues, first from those that come first in the array.
-- params: queues text[], queue text (empty: each row returns its own), n int, places int, token uuid, worker_id bigint,
--         lease_s float8, named boolean, kinds text[], tasks text[]
-- returns: as claim
-- locks: row locks on the claimed runs, skipping locked ones
WITH picked AS MATERIALIZED (
    SELECT found.id, found.note
    FROM unnest(%(queues)s::text::text[]) AS q(queue) CROSS JOIN LATERAL (
        SELECT
        -- include: claim_found
        FROM pgsched.runs
        WHERE phase = 2 /* claimable */ AND state = 'queued' AND queue = q.queue
          AND (kind = ANY (%(kinds)s::text[]) OR kind = 'task' AND task = ANY (%(tasks)s::text[]))
          AND task <> ALL (ARRAY(SELECT p.name FROM pgsched.pauses p WHERE p.what = 'task'
                                 AND coalesce(p.resume_at > clock_timestamp(), true)))
          AND (expires_at IS NULL OR expires_at > clock_timestamp() OR started_at IS NOT NULL)
          AND NOT EXISTS (SELECT FROM pgsched.pauses p
                          WHERE (p.what, p.name) IN (('all', ''), ('queue', q.queue), ('limit', q.queue))
                            AND coalesce(p.resume_at > clock_timestamp(), true))
        ORDER BY priority, available_at, id
        LIMIT %(n)s FOR UPDATE SKIP LOCKED
    ) found
    LIMIT %(n)s
)
-- include: claim_update
-- include: claim_columns


-- name: claim_unconfirmed
-- return the claims that an earlier claim with this token made, after its answer was lost.
-- params: queues text[], queue text (the only one of these, or empty), token uuid, named boolean
-- returns: as claim
-- locks: none
SELECT
-- include: claim_columns
FROM pgsched.runs r
WHERE phase = 2 /* claimable */ AND state = 'running' AND queue = ANY (%(queues)s::text::text[]) AND token = %(token)s


-- name: claim_start
-- claim like `claim`, from the start of the queue: without a claim cursor and without a scan per priority. The plan is
-- smaller, which a worker with a single run notices.
-- params: queue text, n int, places int, token uuid, worker_id bigint, lease_s float8, named boolean, kinds text[],
--         tasks text[]
-- returns: as claim
-- locks: row locks on the claimed runs, skipping locked ones
WITH picked AS MATERIALIZED (
    SELECT
    -- include: claim_found
    FROM pgsched.runs
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
-- include: claim_update
-- include: claim_columns


-- name: claim_lease_left
-- return how long the leases of these claims still last; the shortest counts.
-- params: ids bigint[], token uuid
-- returns: (left_s float8), in seconds; null if none of the claims is this worker's any more
-- locks: none
SELECT extract(epoch FROM min(r.lease_until) - clock_timestamp())::float8 AS left_s
FROM pgsched.runs r
WHERE r.id = ANY (%(ids)s::text::bigint[]) AND CASE WHEN r.token = %(token)s AND r.state = 'running' THEN true END


-- name: claimable_queues
-- return the queues with open runs that this worker may take, by skipping through the claim index (one probe per
-- queue).
-- params: asleep_s float8: for this many seconds, transactions that make a run are to notify the workers, because this
--         one may be asleep (null: do not change that); look boolean: whether to look for queues; known text[]: leave
--         out these queues; among text[]: only these (null: any); after text: start after this name; steps int: at most
--         this many steps; kinds text[], tasks text[]: as claim
-- returns: (queue text, sure_s float8, after text). The first row has no queue, but sure_s: for how many seconds
--          transactions will notify (null: not asked), and after: the name after which to continue (null: there are no
--          more). Then one row for each queue
-- Claimed runs leave dead entries, which each look would read again while a session pins xmin. So known queues are
-- skipped: only the gaps between their names are read. At most 20 open runs are read of each queue. If there are more,
-- a claim has to find out what is behind them.
-- locks: none
WITH RECURSIVE asleep AS MATERIALIZED (
    SELECT CASE WHEN %(asleep_s)s::float8 IS NOT NULL THEN pgsched.workers_asleep(%(asleep_s)s::float8) END AS sure_s
), bounds AS MATERIALIZED (
    SELECT ARRAY(SELECT k FROM unnest(%(known)s::text::text[]) k WHERE k > %(after)s ORDER BY k) AS known
    WHERE %(look)s AND %(among)s::text::text[] IS NULL
), q AS (  -- each step finds the next queue in a gap, or goes on to the next gap
    SELECT %(after)s::text AS queue, 1 AS gap, false AS is_found, 0 AS n FROM bounds
    UNION ALL
    SELECT coalesce(next.queue, b.known[q.gap]), CASE WHEN next.queue IS NULL THEN q.gap + 1 ELSE q.gap END,
        next.queue IS NOT NULL, q.n + 1
    FROM q CROSS JOIN bounds b LEFT JOIN LATERAL (
        (SELECT r.queue FROM pgsched.runs r
         WHERE r.phase = 2 /* claimable */ AND r.queue > q.queue AND r.queue < b.known[q.gap]
         ORDER BY r.queue LIMIT 1)
        UNION ALL
        (SELECT r.queue FROM pgsched.runs r
         WHERE b.known[q.gap] IS NULL AND r.phase = 2 /* claimable */ AND r.queue > q.queue
         ORDER BY r.queue LIMIT 1)
    ) next ON true
    WHERE q.queue IS NOT NULL AND q.n < %(steps)s
), found AS (
    SELECT queue FROM q WHERE is_found
    UNION ALL
    SELECT a FROM unnest(%(among)s::text::text[]) a WHERE %(look)s AND a <> ALL (%(known)s::text::text[])
)
SELECT NULL AS queue, sure_s, (SELECT q.queue FROM q WHERE q.n = %(steps)s) AS after FROM asleep
UNION ALL
SELECT f.queue, NULL, NULL FROM found f WHERE (
    SELECT count(*) = 20 OR bool_or(o.state = 'queued' AND (o.kind = ANY (%(kinds)s::text[])
        OR o.kind = 'task' AND o.task = ANY (%(tasks)s::text[])))
    FROM (SELECT r.state, r.kind, r.task FROM pgsched.runs r WHERE r.phase = 2 /* claimable */ AND r.queue = f.queue
          ORDER BY r.priority, r.available_at, r.id LIMIT 20) o)


-- name: newest_queues
-- return the queues of those of the newest runs that this worker may claim. Asked after a notification about a queue that
-- the worker does not know.
-- params: n int: how many of the newest runs to read; kinds text[], tasks text[]: as claim
-- returns: queue text
-- locks: none. The runs are read by the primary key.
SELECT DISTINCT r.queue FROM (
    SELECT queue, phase, state, kind, task FROM pgsched.runs ORDER BY id DESC LIMIT %(n)s
) r
WHERE r.phase = 2 /* claimable */ AND r.state = 'queued'
  AND (r.kind = ANY (%(kinds)s::text[]) OR r.kind = 'task' AND r.task = ANY (%(tasks)s::text[]))


-- name: cancel_asked
-- return which of these claims are to be cancelled or were taken away; asked between two heartbeats.
-- params: parallel arrays ids bigint[], tokens uuid[]
-- returns: (id, token, cancel boolean: true if the claim is still this worker's)
-- locks: none. Each claim is looked up by its key, whatever the statistics say.
SELECT g.id, g.token, held.cancel IS NOT NULL AS cancel
FROM unnest(%(ids)s::text::bigint[], %(tokens)s::text::uuid[]) AS g(id, token) LEFT JOIN LATERAL (
    SELECT r.cancel_requested_at IS NOT NULL AS cancel FROM pgsched.runs r
    WHERE (r.id, r.token) = (g.id, g.token) AND r.state = 'running'
    OFFSET 0
) held ON true
WHERE held.cancel IS DISTINCT FROM false


-- name: heartbeat
-- renew the leases of all claims of this worker, and update its own row.
-- params: worker_id bigint, lease_s float8, running int, abandoned int, stopping boolean, blocked_s float8 (for how
--         long its event loop has been blocked; null: it is not), blocked_by text, clock_s float8 (the host's, since
--         1970), parallel arrays ids bigint[], tokens uuid[], begun boolean[] (the attempt is being made), name text,
--         fleet uuid (the database must belong to it; null: any)
-- returns: (id, token, cancel, renewed, null) of the claims that are still this worker's; a claim that is missing was
--          lost. cancel: it is to be cancelled. Not renewed: the row is locked, and the next heartbeat will find out.
--          And one row (null, null, drain: the worker was asked to drain, null, drain_asked_by). Without that row, the
--          database has no worker of this id and name (any more). A failover may have lost its row and given the id to
--          another worker, or the worker was silent for so long that it counts as stopped. Then it has to register
--          again, and its row does not change, unless the worker is to drain anyway.
-- Which attempts have begun is written with their leases, at no extra cost: a worker's death counts against those
-- (reap).
-- locks: row locks on those runs, skipping locked ones: a row that a person has locked must not cost the other claims
--        their lease. A stopped worker stays stopped. Each claim is looked up by its key, whatever the statistics say.
WITH me AS (
    UPDATE pgsched.workers SET seen_at = clock_timestamp(), running = %(running)s, abandoned = %(abandoned)s,
        blocked_at = clock_timestamp() - make_interval(secs => %(blocked_s)s::float8), blocked_by = %(blocked_by)s,
        clock_ahead_s = %(clock_s)s::float8 - extract(epoch FROM clock_timestamp())::float8,
        stopping_at = CASE WHEN %(stopping)s THEN coalesce(stopping_at, clock_timestamp()) ELSE stopping_at END,
        stopped_at = CASE WHEN stopping_at IS NOT NULL THEN stopped_at END
    WHERE id = (SELECT id FROM pgsched.workers WHERE id = %(worker_id)s AND name = %(name)s
                  AND (stopped_at IS NULL OR coalesce(stopping_at, drain_asked_at) IS NOT NULL OR %(stopping)s)
                FOR NO KEY UPDATE SKIP LOCKED)
), given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::text::bigint[], %(tokens)s::text::uuid[], %(begun)s::text::boolean[]) AS g(id, token, begun)
), mine AS MATERIALIZED (
    SELECT found.id, g.begun FROM given g CROSS JOIN LATERAL (
        SELECT r.id FROM pgsched.runs r
        WHERE r.id = g.id AND r.token = g.token AND r.state = 'running'
        FOR NO KEY UPDATE OF r SKIP LOCKED
    ) found
), renewed AS (
    UPDATE pgsched.runs r SET lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s), begun = mine.begun
    FROM mine WHERE r.id = mine.id
    RETURNING r.id, r.token, r.cancel_requested_at
)
SELECT id, token, cancel_requested_at IS NOT NULL AS cancel, true AS renewed, NULL AS asked_by FROM renewed
UNION ALL
SELECT held.id, held.token, held.cancel_requested_at IS NOT NULL, false, NULL
FROM given g CROSS JOIN LATERAL (
    SELECT r.id, r.token, r.cancel_requested_at FROM pgsched.runs r
    WHERE (r.id, r.token) = (g.id, g.token) AND r.state = 'running'
    OFFSET 0
) held
WHERE g.id NOT IN (SELECT id FROM renewed)
UNION ALL
SELECT NULL, NULL, drain_asked_at IS NOT NULL, NULL, drain_asked_by FROM pgsched.workers, pgsched.assert_fleet(%(fleet)s::uuid)
WHERE id = %(worker_id)s AND name = %(name)s
  AND (stopped_at IS NULL OR coalesce(stopping_at, drain_asked_at) IS NOT NULL OR %(stopping)s)
