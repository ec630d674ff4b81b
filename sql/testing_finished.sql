-- testing_finished: how the Python runs ended that have ended since then.
-- params: since timestamptz, queues text[] (null: every queue)
-- returns: (state text, n bigint)
-- locks: none
SELECT state, count(*) FROM pgsched.runs
WHERE phase >= 3 AND finished_at >= %(since)s AND kind = 'python'
    AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
GROUP BY state ORDER BY state
