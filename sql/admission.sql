-- Limits: which waiting runs the leader admits.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: limit_admit
-- make these waiting runs claimable, and wake the workers of their queues.
-- params: parallel arrays ids bigint[], queues text[], keys text[] (empty: none): the queue and key under which each
--         was counted
-- returns: id of each admitted run; the others are locked, have ended, or have another key by now
-- locks: row locks on those runs, skipping locked ones
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::text::bigint[], %(queues)s::text[], %(keys)s::text[]) AS g(id, queue, key)
), free AS MATERIALIZED (
    SELECT found.id FROM given CROSS JOIN LATERAL (
        SELECT r.id FROM pgsched.runs r WHERE r.id = given.id AND r.state = 'waiting'
            AND r.queue = given.queue AND coalesce(r.concurrency_key, '') = given.key FOR UPDATE SKIP LOCKED
    ) found
), admitted AS (
    UPDATE pgsched.runs r SET state = 'queued', phase = 2 /* claimable */ FROM free
        WHERE r.id = free.id RETURNING r.id, r.queue
), woken AS (
    SELECT pgsched.notify('pgsched_runs', pgsched.queue_mark(queue)) FROM (SELECT DISTINCT queue FROM admitted) q
)
SELECT id, (SELECT count(*) FROM woken) AS notified FROM admitted


-- name: limit_applied
-- mark these limits as in force: nothing is admitted beyond them any more, and nothing can be. A queue that was closed
-- because it got its first limit is claimed from again. A limit that was changed again in the meantime is left for the
-- next round.
-- params: parallel arrays queues text[] (null: a limit), names text[], versions text[] (as in limit_unapplied)
-- returns: applied bigint
-- locks: those rows, skipping locked ones
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(queues)s::text[], %(names)s::text[], %(versions)s::text[]) AS g(queue, name, version)
), q AS (
    UPDATE pgsched.queues SET applied_at = clock_timestamp() WHERE name IN (
        SELECT t.name FROM given g JOIN pgsched.queues t ON t.name = g.queue
        WHERE t.applied_at IS NULL AND t.xmin::text = g.version FOR UPDATE OF t SKIP LOCKED)
    RETURNING name
), l AS (
    UPDATE pgsched.limits SET applied_at = clock_timestamp() WHERE name IN (
        SELECT t.name FROM given g JOIN pgsched.limits t ON g.queue IS NULL AND t.name = g.name
        WHERE t.applied_at IS NULL AND t.xmin::text = g.version FOR UPDATE OF t SKIP LOCKED)
    RETURNING name
), opened AS (
    DELETE FROM pgsched.pauses WHERE what = 'limit' AND name IN (SELECT name FROM q)
)
SELECT (SELECT count(*) FROM q) + (SELECT count(*) FROM l) AS applied


-- name: limit_candidates
-- return the first runs of some groups, in the order in which they are to be admitted: by (priority, ready_at, id);
-- where the key is ordered, by (ready_at, id) over all queues; where priorities rise with age, the first runs of each
-- priority. A run of a paused task is skipped, except where the key is ordered: there it keeps its place, and later
-- runs wait.
-- params: parallel arrays queues text[], keys text[], ns int[], ordereds boolean[], ageing_ss float8[]
-- returns: (n: the group's position in the arrays, from 1; id, priority, ready_at, waited_s)
-- locks: none
WITH paused AS MATERIALIZED (
    SELECT coalesce(array_agg(name), '{}') AS tasks FROM pgsched.pauses
    WHERE what = 'task' AND coalesce(resume_at > clock_timestamp(), true)
)
SELECT g.n, f.id, f.priority, f.ready_at, extract(epoch FROM clock_timestamp() - f.ready_at)::float8 AS waited_s
FROM unnest(%(queues)s::text[], %(keys)s::text[], %(ns)s::int[], %(ordereds)s::boolean[], %(ageing_ss)s::float8[])
    WITH ORDINALITY AS g(queue, key, most, ordered, ageing_s, n)
CROSS JOIN LATERAL (
    (SELECT r.id, r.priority, r.ready_at, r.task, r.queue
     FROM pgsched.runs r
     WHERE NOT g.ordered AND g.ageing_s IS NULL AND r.ready_at IS NOT NULL AND r.phase = 0 /* waiting */
         AND r.queue = g.queue
       AND coalesce(r.concurrency_key, '') = g.key AND r.available_at <= clock_timestamp()
       AND coalesce(least(r.held_until, r.expires_at) > clock_timestamp() OR r.started_at IS NOT NULL, true)
       AND r.task <> ALL ((SELECT tasks FROM paused)::text[])
     ORDER BY r.priority, r.ready_at, r.id LIMIT g.most)
    UNION ALL
    (SELECT r.id, r.priority, r.ready_at, r.task, r.queue
     FROM pgsched.runs r
     WHERE g.ordered AND r.concurrency_key = g.key AND r.phase = 0 /* waiting */ AND r.ready_at IS NOT NULL
       AND r.available_at <= clock_timestamp()
       AND coalesce(least(r.held_until, r.expires_at) > clock_timestamp() OR r.started_at IS NOT NULL, true)
     ORDER BY r.concurrency_key, r.phase, r.ready_at, r.id LIMIT g.most)
    UNION ALL
    SELECT a.* FROM generate_series(0, 9) AS p(priority) CROSS JOIN LATERAL (
        SELECT r.id, r.priority, r.ready_at, r.task, r.queue
        FROM pgsched.runs r
        WHERE NOT g.ordered AND g.ageing_s IS NOT NULL AND r.ready_at IS NOT NULL AND r.phase = 0 /* waiting */
          AND r.queue = g.queue AND coalesce(r.concurrency_key, '') = g.key AND r.priority = p.priority
          AND r.available_at <= clock_timestamp()
          AND coalesce(least(r.held_until, r.expires_at) > clock_timestamp() OR r.started_at IS NOT NULL, true)
          AND r.task <> ALL ((SELECT tasks FROM paused)::text[])
        ORDER BY r.ready_at, r.id LIMIT g.most
    ) a
) f
WHERE f.queue = g.queue AND f.task <> ALL ((SELECT tasks FROM paused)::text[])


-- name: limit_forget
-- delete the buckets that have been full for long or belong to no limit, the pauses that have ended, and the flags of
-- queues without settings. A bucket without any admitted run left counts none as unstarted any more, and gains tokens
-- only from now on.
-- params: none
-- returns: nothing
-- locks: those rows
WITH known AS MATERIALIZED (
    SELECT b.name, b.at, b.tokens, b.unstarted, b.name LIKE 'queue %%' AS of_queue, substr(b.name, 5) AS key,
        substr(b.name, 7) AS queue FROM pgsched.buckets b
), settled AS (
    UPDATE pgsched.buckets b SET unstarted = 0, at = clock_timestamp() FROM known k
    WHERE b.name = k.name AND k.unstarted > 0 AND k.at < clock_timestamp() - interval '1 minute'
        -- no joins: one look each, as in limit_groups
        AND CASE WHEN k.of_queue THEN (SELECT true FROM pgsched.runs r WHERE r.phase = 2 /* claimable */
            AND r.queue = k.queue LIMIT 1)
            ELSE (SELECT true FROM pgsched.runs r WHERE r.concurrency_key = k.key AND r.phase BETWEEN 2 AND 2 LIMIT 1) END IS NULL
), bounded AS (
    SELECT k.name, k.at, k.unstarted, coalesce(q.rate, l.rate) AS rate, coalesce(q.rate_burst, l.burst, 0) AS burst,
        coalesce(extract(epoch FROM q.rate_period)::float8, l.period_s) AS period_s
    FROM known k LEFT JOIN pgsched.queues q ON k.of_queue AND q.name = k.queue
    LEFT JOIN LATERAL pgsched.limit_of(k.key) l ON NOT k.of_queue
), gone AS (
    DELETE FROM pgsched.buckets b USING bounded k
    WHERE b.name = k.name AND (k.rate IS NULL OR k.unstarted = 0
        AND k.at < clock_timestamp() - make_interval(secs => 60 + k.period_s * (1 + k.burst::float8 / k.rate)))
), worthless AS (
    DELETE FROM pgsched.refunds WHERE claimed_at < clock_timestamp() - interval '31 days'
), over AS (
    -- and pauses for a first limit that does not exist any more, because the queue was renamed
    DELETE FROM pgsched.pauses p WHERE p.resume_at <= clock_timestamp() OR p.what = 'limit' AND NOT EXISTS (
        SELECT FROM pgsched.queues q WHERE q.name = p.name AND q.applied_at IS NULL)
)
SELECT pgsched.forget_gates()


-- name: limit_groups
-- return the groups (queue and key) of runs that only limits keep waiting, with the first run of each and the limit
-- that applies. The index is skipped through: one probe per group, however many runs wait in it.
-- params: after_queue text, after_key text (start after this group; empty: at the first one), n int (at most this many
--         groups), most int (at most this many where the queue itself is limited: to find its first run, all its groups
--         are needed)
-- returns: (last: there may be more groups after this one; queue, key: empty if a run has none; name: of its limit;
--          concurrency, rate, period_s, burst, ordered, weight; admitted: queued and running, and for an ordered key
--          also runs that have started and wait for a further attempt; unstarted: the queued ones; tokens, bucket_at,
--          bucket_unstarted: null while the bucket of its rate is full; id, priority, ready_at, waited_s: of the first
--          run, by (priority, ready_at, id), or by (ready_at, id) where the key is ordered, as in limit_candidates;
--          free: nothing else keeps it waiting), by queue and key. The limit's columns are null without a limit, and
--          then nothing is counted
-- locks: none
WITH RECURSIVE limited AS MATERIALIZED (
    SELECT coalesce(array_agg(name), '{}') AS names FROM pgsched.queues WHERE limited
), g AS (
    (SELECT r.queue, coalesce(r.concurrency_key, '') AS key, 1 AS n, r.id FROM pgsched.runs r
     WHERE r.ready_at IS NOT NULL AND r.phase = 0 /* waiting */
       AND (r.queue, coalesce(r.concurrency_key, '')) > (%(after_queue)s::text, %(after_key)s::text)
     ORDER BY r.queue, coalesce(r.concurrency_key, ''), r.priority, r.ready_at, r.id LIMIT 1)
    UNION ALL
    SELECT next.queue, next.key, g.n + 1, next.id FROM g CROSS JOIN LATERAL (
        SELECT r.queue, coalesce(r.concurrency_key, '') AS key, r.id FROM pgsched.runs r
        WHERE r.ready_at IS NOT NULL AND r.phase = 0 /* waiting */
          AND (r.queue, coalesce(r.concurrency_key, '')) > (g.queue, g.key)
        ORDER BY r.queue, coalesce(r.concurrency_key, ''), r.priority, r.ready_at, r.id LIMIT 1
    ) next
    WHERE g.n < CASE WHEN g.queue = ANY ((SELECT names FROM limited)::text[]) THEN %(most)s::int ELSE %(n)s::int END
), paused AS MATERIALIZED (
    SELECT array_agg(name) AS tasks FROM pgsched.pauses
    WHERE what = 'task' AND coalesce(resume_at > clock_timestamp(), true)
)
SELECT g.n >= CASE WHEN g.queue = ANY ((SELECT names FROM limited)::text[]) THEN %(most)s::int ELSE %(n)s::int END AS last,
    g.queue, g.key, b.name, b.concurrency, b.rate, b.period_s, b.burst, b.ordered, coalesce(b.weight, 1) AS weight,
    c.admitted + h.held AS admitted, c.unstarted, k.tokens, k.at AS bucket_at, k.unstarted AS bucket_unstarted,
    r.id, r.priority, r.ready_at, extract(epoch FROM clock_timestamp() - r.ready_at)::float8 AS waited_s,
    r.queue = g.queue AND r.available_at <= clock_timestamp()
        AND coalesce(least(r.held_until, r.expires_at) > clock_timestamp() OR r.started_at IS NOT NULL, true)
        AND NOT coalesce(r.task = ANY ((SELECT tasks FROM paused)::text[]), false) AS free
FROM g LEFT JOIN LATERAL pgsched.limit_of(g.key) b ON g.key <> ''
LEFT JOIN pgsched.buckets k ON b.rate IS NOT NULL AND k.name = 'key ' || g.key
-- BETWEEN: `= 2` would let the planner read all queued runs for each key, where its statistics know of none
CROSS JOIN LATERAL (
    SELECT count(*) AS admitted, count(*) FILTER (WHERE a.state = 'queued') AS unstarted FROM pgsched.runs a
    WHERE coalesce(b.concurrency, b.rate) IS NOT NULL AND a.concurrency_key = g.key AND a.phase BETWEEN 2 AND 2
) c
CROSS JOIN LATERAL (
    SELECT count(*) AS held FROM pgsched.runs a
    WHERE b.ordered AND a.concurrency_key = g.key AND a.phase BETWEEN 1 AND 1 AND a.started_at IS NOT NULL
) h
LEFT JOIN LATERAL (
    SELECT a.id FROM pgsched.runs a
    WHERE b.ordered AND a.concurrency_key = g.key AND a.phase BETWEEN 0 AND 0 AND a.ready_at IS NOT NULL
    ORDER BY a.concurrency_key, a.phase, a.ready_at, a.id LIMIT 1
) o ON true
JOIN pgsched.runs r ON r.id = coalesce(o.id, g.id)
ORDER BY g.n


-- name: limit_open_keys
-- return the keys with admitted runs to which changed limits apply, so that the change can be applied.
-- params: none (the limits are those that are not applied yet)
-- returns: (key, concurrency, rate, burst, ordered, admitted, unstarted)
-- locks: none
WITH RECURSIVE k AS (
    (SELECT concurrency_key AS key FROM pgsched.runs WHERE concurrency_key IS NOT NULL AND phase < 3 /* open */
     ORDER BY concurrency_key LIMIT 1)
    UNION ALL
    SELECT next.key FROM k CROSS JOIN LATERAL (
        SELECT r.concurrency_key AS key FROM pgsched.runs r
        WHERE r.concurrency_key IS NOT NULL AND r.phase < 3 /* open */ AND r.concurrency_key > k.key
        ORDER BY r.concurrency_key LIMIT 1) next
)
SELECT k.key, b.concurrency, b.rate, b.burst, b.ordered, c.admitted, c.unstarted
FROM k CROSS JOIN LATERAL pgsched.limit_of(k.key) b CROSS JOIN LATERAL (
    SELECT count(*) AS admitted, count(*) FILTER (WHERE r.state = 'queued') AS unstarted
    FROM pgsched.runs r WHERE r.concurrency_key = k.key AND r.phase BETWEEN 2 AND 2  -- as in limit_groups
) c
WHERE c.unstarted > 0 AND EXISTS (SELECT FROM pgsched.limits l WHERE l.applied_at IS NULL AND l.name = b.name)


-- name: limit_queues
-- return the queues that are limited or paused, and how many runs of each are admitted. At most 20,000 runs beyond a
-- queue's limits are counted.
-- params: none
-- returns: (queue: empty in the row for all other queues; concurrency, rate, period_s, burst, fair, ageing_s: null
--          where nothing is set; admitted, unstarted: 0 where the queue is not limited; counted: all were counted;
--          places: those of live workers that serve the queue; paused; tokens, bucket_at, bucket_unstarted:
--          null while the bucket is full; now)
-- locks: none
WITH paused AS MATERIALIZED (
    SELECT what, name FROM pgsched.pauses
    WHERE what IN ('all', 'queue') AND coalesce(resume_at > clock_timestamp(), true)
), named AS (
    SELECT name AS queue FROM pgsched.queues WHERE limited
    UNION SELECT name FROM paused
    UNION SELECT ''
)
SELECT n.queue, q.concurrency_limit AS concurrency, q.rate, extract(epoch FROM q.rate_period)::float8 AS period_s,
    q.rate_burst AS burst, coalesce(q.fair, false) AS fair, extract(epoch FROM q.ageing)::float8 AS ageing_s,
    c.admitted, c.unstarted, c.admitted < m.most AS counted, s.places,
    EXISTS (SELECT FROM paused p WHERE p.what = 'all' OR p.name = n.queue) AS paused,
    b.tokens, b.at AS bucket_at, b.unstarted AS bucket_unstarted, clock_timestamp() AS now
FROM named n LEFT JOIN pgsched.queues q ON q.name = n.queue
LEFT JOIN pgsched.buckets b ON b.name = 'queue ' || n.queue
CROSS JOIN LATERAL (
    SELECT 20000 + coalesce(q.concurrency_limit, 0)::bigint + coalesce(q.rate_burst, q.rate / 10, 0) AS most
) m
CROSS JOIN LATERAL (
    SELECT count(*) AS admitted, count(*) FILTER (WHERE f.state = 'queued') AS unstarted FROM (
        SELECT r.state FROM pgsched.runs r WHERE q.limited AND r.phase = 2 /* claimable */ AND r.queue = n.queue
        ORDER BY r.queue, r.priority LIMIT m.most) f
) c
CROSS JOIN LATERAL (
    SELECT coalesce(sum(w.concurrency), 0)::bigint AS places FROM pgsched.workers w
    WHERE (q.fair OR q.ageing IS NOT NULL) AND w.stopped_at IS NULL AND w.stopping_at IS NULL
      AND w.seen_at > clock_timestamp() - w.lease AND (w.queues IS NULL OR n.queue = ANY (w.queues))
) s


-- name: limit_raise
-- set the priority that runs have risen to while they waited, so that claims use it too.
-- params: parallel arrays ids bigint[], priorities smallint[]
-- returns: nothing
-- locks: those runs, skipping locked ones; called before limit_admit in the same transaction, with runs that still wait
UPDATE pgsched.runs r SET priority = g.priority
FROM unnest(%(ids)s::text::bigint[], %(priorities)s::text::smallint[]) AS g(id, priority)
WHERE r.id = g.id AND r.phase = 0 /* waiting */
  AND r.id IN (SELECT w.id FROM pgsched.runs w WHERE w.id = ANY (%(ids)s::text::bigint[]) FOR UPDATE SKIP LOCKED)


-- name: limit_refunds
-- return the claims of these queues and keys that were given back before they started. Each claim is returned once.
-- params: queues text[], keys text[]: those that have a rate
-- returns: (queue, key: null if there is none, claimed_at, age_s)
-- locks: those rows
DELETE FROM pgsched.refunds WHERE queue = ANY (%(queues)s::text[]) OR concurrency_key = ANY (%(keys)s::text[])
RETURNING queue, concurrency_key AS key, claimed_at,
    greatest(0, extract(epoch FROM clock_timestamp() - claimed_at))::float8 AS age_s


-- name: limit_save
-- store the tokens that are left, in the transaction that admits.
-- params: parallel arrays names text[], tokens float8[], unstarteds int[]; at timestamptz
-- returns: nothing
-- locks: those buckets
INSERT INTO pgsched.buckets AS b (name, tokens, at, unstarted)
SELECT g.name, g.tokens, %(at)s, g.unstarted
FROM unnest(%(names)s::text[], %(tokens)s::float8[], %(unstarteds)s::int[]) AS g(name, tokens, unstarted)
ON CONFLICT (name) DO UPDATE SET tokens = excluded.tokens, at = excluded.at, unstarted = excluded.unstarted


-- name: limit_shut
-- record which server process a queue waits for before its first limit takes effect. Its row has the time since when it
-- waits (paused_at).
-- params: parallel arrays queues text[], pids int[]
-- returns: nothing
-- locks: those rows
UPDATE pgsched.pauses p SET waits_for = g.pid
FROM unnest(%(queues)s::text[], %(pids)s::int[]) AS g(queue, pid)
WHERE p.what = 'limit' AND p.name = g.queue AND p.waits_for IS DISTINCT FROM g.pid


-- name: limit_take_back
-- make the last admitted runs that have not started wait again, because more are admitted than a limit allows by now.
-- Running runs are left alone.
-- params: parallel arrays queues text[] (null: by key), keys text[] (null: by queue), ns int[]
-- returns: (n: the position in the arrays, from 1; id) of each run that waits again
-- locks: row locks on those runs, skipping locked ones, which a worker is claiming
WITH last AS MATERIALIZED (
    SELECT g.n, f.id FROM unnest(%(queues)s::text[], %(keys)s::text[], %(ns)s::int[])
        WITH ORDINALITY AS g(queue, key, most, n)
    CROSS JOIN LATERAL (
        (SELECT r.id FROM pgsched.runs r
         WHERE g.key IS NULL AND r.phase = 2 /* claimable */ AND r.queue = g.queue AND r.state = 'queued'
         ORDER BY r.queue DESC, r.priority DESC, r.available_at DESC, r.id DESC LIMIT g.most FOR UPDATE SKIP LOCKED)
    ) f
    UNION ALL
    SELECT g.n, f.id FROM unnest(%(queues)s::text[], %(keys)s::text[], %(ns)s::int[])
        WITH ORDINALITY AS g(queue, key, most, n)
    CROSS JOIN LATERAL (
        (SELECT r.id FROM pgsched.runs r
         WHERE g.key IS NOT NULL AND r.concurrency_key = g.key AND r.phase = 2 /* claimable */ AND r.state = 'queued'
         ORDER BY r.concurrency_key DESC, r.phase DESC, r.ready_at DESC, r.id DESC
         LIMIT g.most FOR UPDATE SKIP LOCKED)
    ) f
)
UPDATE pgsched.runs r SET state = 'waiting', phase = 0 /* waiting */, ready_at = coalesce(r.ready_at, r.available_at)
FROM last WHERE r.id = last.id
RETURNING last.n, r.id


-- name: limit_unapplied
-- return the queues and limits that were changed since the leader last applied them.
-- params: none
-- returns: (queue: null for a limit, name, version: of its row, by which a further change is recognized)
-- locks: none
SELECT name AS queue, name, xmin::text AS version FROM pgsched.queues WHERE applied_at IS NULL
UNION ALL
SELECT NULL, name, xmin::text FROM pgsched.limits WHERE applied_at IS NULL
ORDER BY 1, 2


-- name: limit_writers
-- return the transactions that have written runs or are writing them. Each may have made a run claimable without seeing
-- a queue's first limit. Transactions that begin to write later see all that was committed before this statement.
-- params: none
-- returns: (virtualtransaction, pid)
-- locks: none
SELECT DISTINCT virtualtransaction, pid FROM pg_catalog.pg_locks
WHERE locktype = 'relation' AND relation = 'pgsched.runs'::regclass AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
  AND pid IS DISTINCT FROM pg_backend_pid()
