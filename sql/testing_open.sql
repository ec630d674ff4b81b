-- testing_open: what a drain still waits for: runs of these tasks that are due, or all of them that have not finished.
-- params: tasks text[], queues text[] (null: every queue), scheduled boolean (those that are due later too)
-- returns: (id bigint, task text, state text) of each, oldest first
-- locks: none
SELECT id, task, state FROM pgsched.runs
WHERE phase < 3 AND kind = 'python' AND task = ANY (%(tasks)s::text[])
    AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
    AND (phase <> 1 OR %(scheduled)s::boolean OR available_at <= clock_timestamp())
ORDER BY id LIMIT 20
