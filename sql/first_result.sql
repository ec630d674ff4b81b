-- first_result: what became of the run that an idempotency key stands for.
-- params: key text
-- returns: (run_id, state, result, error, finished_at); no row once the key has expired
-- locks: none
SELECT run_id, state, result, error, finished_at FROM pgsched.first_result(%(key)s::text)
