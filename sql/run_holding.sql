-- run_holding: what keeps a run from starting: pauses, and the limits that it waits for.
-- params: id bigint
-- returns: one row: pauses json (what, name, reason, paused_by, resume_at) or null; key, limit_name, concurrency, rate,
--          period_s, admitted (of the key, at most 10,000 are counted), ahead (of its key, waiting longer, at most 1,000);
--          queue_concurrency, queue_rate, queue_period_s, queue_admitted, fair. No row where there is no such run
-- locks: none
SELECT (SELECT json_agg(json_build_object('what', p.what, 'name', p.name, 'reason', p.reason, 'paused_by', p.paused_by))
        FROM pgsched.pauses p
        WHERE (p.what, p.name) IN (('all', ''), ('queue', r.queue), ('task', r.task), ('limit', r.queue))
          AND coalesce(p.resume_at > clock_timestamp(), true)) AS pauses,
    r.concurrency_key AS key, l.name AS limit_name, l.concurrency, l.rate, l.period_s, l.ordered,
    (SELECT count(*) FROM (SELECT FROM pgsched.runs k WHERE k.concurrency_key = r.concurrency_key AND k.phase = 2
                           LIMIT 10000) f) AS admitted,
    (SELECT count(*) FROM (SELECT FROM pgsched.runs k WHERE k.concurrency_key = r.concurrency_key AND k.phase = 0
                           AND k.ready_at < r.ready_at LIMIT 1000) f) AS ahead,
    q.concurrency_limit AS queue_concurrency, q.rate AS queue_rate,
    extract(epoch FROM q.rate_period)::float8 AS queue_period_s, coalesce(q.fair, false) AS fair,
    (SELECT count(*) FROM (SELECT FROM pgsched.runs k WHERE q.concurrency_limit IS NOT NULL AND k.phase = 2
                           AND k.queue = r.queue ORDER BY k.queue, k.priority LIMIT 10000) f) AS queue_admitted
FROM pgsched.runs r LEFT JOIN LATERAL pgsched.limit_of(r.concurrency_key) l ON true
LEFT JOIN pgsched.queues q ON q.name = r.queue
WHERE r.id = %(id)s
