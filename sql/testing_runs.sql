-- testing_runs: the unfinished runs of a task, or of all Python tasks, in the order in which they were made.
-- params: task text; null: all
-- returns: one row per run
-- locks: none
SELECT id, task, args, queue, priority, available_at, tags, unique_key, idempotency_key,
    concurrency_key, state, result, error, attempt,
    max_attempts, scheduled_at
FROM pgsched.runs WHERE phase < 3 AND kind = 'python' AND (%(task)s::text IS NULL OR task = %(task)s::text)
ORDER BY id
