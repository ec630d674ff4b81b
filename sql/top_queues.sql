-- top_queues: the queues that have settings or a pause; nothing is counted.
-- params: none
-- returns: (name, concurrency_limit, rate, rate_s, rate_burst, fair, ageing, max_depth, on_full, keep: null without
--          settings), as queue_list
-- locks: none
SELECT n.name, s.concurrency_limit, s.rate, extract(epoch FROM s.rate_period)::float8 AS rate_s, s.rate_burst,
    coalesce(s.fair, false) AS fair, s.ageing, s.max_depth, s.on_full, s.keep
FROM (SELECT name FROM pgsched.queues
      UNION SELECT name FROM pgsched.pauses
      WHERE what = 'queue' AND coalesce(resume_at > clock_timestamp(), true)) n
LEFT JOIN pgsched.queues s ON s.name = n.name ORDER BY n.name
