-- top_log: the end of a run's output.
-- params: id bigint, n int (rows), characters int (of each row)
-- returns: up to n rows (attempt, seq, stream, chunk: its end), oldest first
-- locks: none
SELECT attempt, seq, stream, right(chunk, %(characters)s) AS chunk FROM (
    SELECT attempt, seq, stream, chunk FROM pgsched.run_logs
    WHERE run_id = %(id)s ORDER BY run_id DESC, attempt DESC, seq DESC LIMIT %(n)s
) newest ORDER BY attempt, seq
