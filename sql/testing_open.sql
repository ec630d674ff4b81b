-- testing_open: what a drain still waits for: runs of these tasks that are due, or all of them that have not finished;
-- not those that wait for a run which has not.
-- params: tasks text[], queues text[] (null: every queue), scheduled boolean (those that are due later too)
-- returns: (id bigint, task text, state text) of each, oldest first
-- locks: none
SELECT id, task, state FROM pgsched.runs
WHERE phase < 3 AND kind = 'python' AND task = ANY (%(tasks)s::text[])
    AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
    AND (phase <> 1 OR %(scheduled)s::boolean OR available_at <= clock_timestamp())
    -- those that it waits for count themselves; it does once they have ended, and the leader is to tell it
    AND (available_at < '9000-01-01 00:00Z' OR EXISTS (
        SELECT FROM pgsched.dependencies d JOIN pgsched.runs p ON p.id = d.parent_id
        WHERE d.run_id = runs.id AND d.state = 'open' AND p.phase >= 3 AND p.has_children)
        OR NOT EXISTS (SELECT FROM pgsched.dependencies d WHERE d.run_id = runs.id AND d.state = 'open'))
ORDER BY id LIMIT 20
