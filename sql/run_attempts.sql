-- run_attempts: the attempts of a run that did not succeed, oldest first.
-- params: id bigint
-- returns: one row per attempt
-- locks: none
SELECT attempt, outcome, started_at, finished_at, worker_id, worker, error, traceback, log_tail
FROM pgsched.attempts WHERE run_id = %(id)s ORDER BY finished_at, attempt
