-- queue_list: the queues that have settings, a pause or unfinished runs, which are counted up to 100,000 of each kind.
-- params: bounded boolean (only those that have a limit, rate or depth)
-- returns: (name, concurrency_limit, rate, rate_s, rate_burst, fair, ageing, max_depth, on_full, keep, applied: null without
--          settings; depth: runs that wait to start, queued or held by limits; running, paused_at, paused_by,
--          paused_reason, resume_at)
-- locks: none
WITH RECURSIVE q AS (
    (SELECT queue FROM pgsched.runs WHERE phase = 2 AND NOT %(bounded)s ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT r.queue FROM pgsched.runs r WHERE r.phase = 2 AND r.queue > q.queue ORDER BY r.queue LIMIT 1)
    FROM q WHERE q.queue IS NOT NULL
), w AS (
    (SELECT queue FROM pgsched.runs WHERE phase = 0 AND ready_at IS NOT NULL AND NOT %(bounded)s
     ORDER BY queue, coalesce(concurrency_key, '') LIMIT 1)
    UNION ALL
    SELECT (SELECT r.queue FROM pgsched.runs r WHERE r.phase = 0 AND r.ready_at IS NOT NULL AND r.queue > w.queue
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
    (SELECT count(*) FROM (SELECT FROM pgsched.runs r WHERE r.phase = 2 AND r.queue = n.name AND r.state = 'running'
                           ORDER BY r.queue, r.priority LIMIT 100000) f) AS running,
    p.paused_at, p.paused_by, p.reason AS paused_reason, p.resume_at
FROM named n LEFT JOIN pgsched.queues s ON s.name = n.name
LEFT JOIN pgsched.pauses p ON p.what = 'queue' AND p.name = n.name AND coalesce(p.resume_at > clock_timestamp(), true)
ORDER BY n.name
