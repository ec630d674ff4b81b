-- run_log_read: the output of a run from a place on, in the order in which it was written.
-- params: id bigint, after_attempt int, after_seq int, attempt int (null: all), stream text (null: all), n int
-- returns: up to n rows (attempt, seq, at, stream, chunk); the stream 'cut' says what is left out at its place
-- locks: none
SELECT attempt, seq, at, stream, chunk FROM pgsched.run_logs
WHERE run_id = %(id)s AND (attempt, seq) > (%(after_attempt)s, %(after_seq)s)
  AND (%(attempt)s::int IS NULL OR attempt = %(attempt)s::int)
  AND (%(stream)s::text IS NULL OR stream IN (%(stream)s::text, 'cut'))
ORDER BY attempt, seq LIMIT %(n)s
