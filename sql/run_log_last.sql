-- run_log_last: the newest rows of a run's output.
-- params: id bigint, n int
-- returns: up to n rows (attempt, seq, at, stream, chunk), oldest first
-- locks: none
SELECT * FROM (
    SELECT attempt, seq, at, stream, chunk FROM pgsched.run_logs
    WHERE run_id = %(id)s ORDER BY run_id DESC, attempt DESC, seq DESC LIMIT %(n)s
) newest ORDER BY attempt, seq
