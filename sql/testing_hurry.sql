-- testing_hurry: runs that are due later are due now.
-- params: tasks text[], queues text[] (null: every queue)
-- returns: nothing
-- locks: those runs
UPDATE pgsched.runs SET available_at = clock_timestamp()
WHERE phase = 1 AND available_at > clock_timestamp() AND kind = 'python' AND task = ANY (%(tasks)s::text[])
    AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
