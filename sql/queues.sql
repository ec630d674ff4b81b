-- Queues, limits and pauses, as people set them.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: limit_list
-- return the limits of keys.
-- params: none
-- returns: the columns of the table, and rate_s (the period in seconds), applied; keys, admitted, waiting: of the keys
--          to which each applies and that have unfinished runs (at most 10,000 keys are read)
-- locks: none
WITH RECURSIVE k AS (
    (SELECT concurrency_key AS key, 1 AS n FROM pgsched.runs WHERE concurrency_key IS NOT NULL AND phase < 3 /* open */
     ORDER BY concurrency_key LIMIT 1)
    UNION ALL
    SELECT next.key, k.n + 1 FROM k CROSS JOIN LATERAL (
        SELECT r.concurrency_key AS key FROM pgsched.runs r
        WHERE r.concurrency_key IS NOT NULL AND r.phase < 3 /* open */ AND r.concurrency_key > k.key
        ORDER BY r.concurrency_key LIMIT 1) next
    WHERE k.n < 10000
), counted AS MATERIALIZED (
    SELECT b.name, c.* FROM k CROSS JOIN LATERAL pgsched.limit_of(k.key) b CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE f.phase = 2 /* claimable */) AS admitted, count(*) FILTER (WHERE f.phase = 0 /* waiting */) AS waiting
        FROM (SELECT r.phase FROM pgsched.runs r WHERE r.concurrency_key = k.key
            AND r.phase < 3 /* open */ LIMIT 10000) f) c
    WHERE k.key !~ '^job:[0-9]'
)
SELECT l.name, l.concurrency, l.rate, extract(epoch FROM l.rate_period)::float8 AS rate_s, l.rate_burst, l.ordered,
    l.weight, l.declared_by, l.applied_at IS NOT NULL AS applied, count(c.name) AS keys,
    coalesce(sum(c.admitted), 0)::bigint AS admitted, coalesce(sum(c.waiting), 0)::bigint AS waiting
FROM pgsched.limits l LEFT JOIN counted c ON c.name = l.name
GROUP BY l.name ORDER BY l.name


-- name: limit_remove
-- delete a limit of keys.
-- params: name text
-- returns: name, or no row
-- locks: that row
DELETE FROM pgsched.limits WHERE name = %(name)s RETURNING name


-- name: pause_end
-- end a pause. A trigger wakes the workers.
-- params: what text, name text (empty for all)
-- returns: the pause as it was, or no row
-- locks: that row
DELETE FROM pgsched.pauses WHERE what = %(what)s AND name = %(name)s
RETURNING what, name, paused_at, paused_by, reason, resume_at


-- name: pause_list
-- return what is paused now.
-- params: none
-- returns: (what, name: empty for all, paused_at, paused_by, reason, resume_at: null: until it is resumed, now)
-- locks: none
SELECT what, name, paused_at, paused_by, reason, resume_at, clock_timestamp() AS now FROM pgsched.pauses
WHERE what <> 'limit' AND coalesce(resume_at > clock_timestamp(), true) ORDER BY what, name


-- name: pause_set
-- pause a queue, a task or everything: nothing of it is claimed. If it is paused already, the time and values that are
-- not given stay.
-- params: what text (all, queue, task), name text (empty for all), reason text, paused_by text (null: the session's
--         user), lasts interval (null: until it is resumed)
-- returns: the pause
-- locks: that row
INSERT INTO pgsched.pauses AS p (what, name, reason, paused_by, resume_at)
VALUES (%(what)s, %(name)s, %(reason)s::text, coalesce(%(paused_by)s::text, session_user),
        clock_timestamp() + %(lasts)s::interval)
ON CONFLICT (what, name) DO UPDATE SET reason = coalesce(excluded.reason, p.reason),
    paused_by = CASE WHEN %(paused_by)s::text IS NULL THEN p.paused_by ELSE excluded.paused_by END,
    paused_at = CASE WHEN p.resume_at <= clock_timestamp() THEN excluded.paused_at ELSE p.paused_at END,
    resume_at = excluded.resume_at
RETURNING what, name, paused_at, paused_by, reason, resume_at


-- name: queue_list
-- return the queues that have settings, a pause, or runs that are queued, running or kept waiting by limits. Runs are
-- counted up to 100,000 of each kind. Scheduled runs, and those that wait for others, name no queue.
-- params: bounded boolean (only queues that have a limit, rate or depth)
-- returns: (name, concurrency_limit, rate, rate_s, rate_burst, fair, ageing, max_depth, on_full, keep, applied: null
--          without settings; depth: runs that are queued or that limits keep waiting; running, paused_at, paused_by,
--          paused_reason, resume_at)
-- locks: none
WITH RECURSIVE q AS (
    (SELECT queue FROM pgsched.runs WHERE phase = 2 /* claimable */ AND NOT %(bounded)s ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT r.queue FROM pgsched.runs r WHERE r.phase = 2 /* claimable */ AND r.queue > q.queue
        ORDER BY r.queue LIMIT 1)
    FROM q WHERE q.queue IS NOT NULL
), w AS (
    (SELECT queue FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NOT NULL AND NOT %(bounded)s
     ORDER BY queue, coalesce(concurrency_key, '') LIMIT 1)
    UNION ALL
    SELECT (SELECT r.queue FROM pgsched.runs r WHERE r.phase = 0 /* waiting */ AND r.ready_at IS NOT NULL
        AND r.queue > w.queue
            ORDER BY r.queue, coalesce(r.concurrency_key, '') LIMIT 1)
    FROM w WHERE w.queue IS NOT NULL
), named AS (
    SELECT queue AS name FROM q WHERE queue IS NOT NULL
    UNION SELECT queue FROM w WHERE queue IS NOT NULL
    UNION SELECT name FROM pgsched.queues
    WHERE NOT %(bounded)s OR concurrency_limit IS NOT NULL OR rate IS NOT NULL OR max_depth IS NOT NULL
    UNION SELECT name FROM pgsched.pauses
    WHERE what = 'queue' AND coalesce(resume_at > clock_timestamp(), true) AND NOT %(bounded)s
)
SELECT n.name, s.concurrency_limit, s.rate, extract(epoch FROM s.rate_period)::float8 AS rate_s, s.rate_burst,
    coalesce(s.fair, false) AS fair, s.ageing, s.max_depth, s.on_full, s.keep, s.applied_at IS NOT NULL AS applied,
    pgsched.queue_depth(n.name, 100000) AS depth,
    (SELECT count(*) FROM (SELECT FROM pgsched.runs r WHERE r.phase = 2 /* claimable */ AND r.queue = n.name
        AND r.state = 'running'
                           ORDER BY r.queue, r.priority LIMIT 100000) f) AS running,
    p.paused_at, p.paused_by, p.reason AS paused_reason, p.resume_at
FROM named n LEFT JOIN pgsched.queues s ON s.name = n.name
LEFT JOIN pgsched.pauses p ON p.what = 'queue' AND p.name = n.name AND coalesce(p.resume_at > clock_timestamp(), true)
ORDER BY n.name
