-- run_log_read: the output of a run from a place on, in the order in which it was written.
-- params: id bigint, after_attempt int, after_seq int, after_characters int (how much the reader has of that row),
--         attempt int (null: all), stream text (null: all), n int
-- returns: up to n rows (attempt, seq, at, stream, chunk, characters: the whole length); the stream 'cut' says what is
--          left out at its place
-- locks: none
SELECT attempt, seq, at, stream, length(chunk) AS characters,
    CASE WHEN seq = %(after_seq)s AND attempt = %(after_attempt)s AND stream <> 'cut'
         THEN substr(chunk, %(after_characters)s + 1) ELSE chunk END AS chunk
FROM pgsched.run_logs
WHERE run_id = %(id)s AND (attempt, seq) >= (%(after_attempt)s, %(after_seq)s)
  AND (attempt > %(after_attempt)s OR seq > %(after_seq)s OR length(chunk) > %(after_characters)s)
  AND (%(attempt)s::int IS NULL OR attempt = %(attempt)s::int)
  AND (%(stream)s::text IS NULL OR stream IN (%(stream)s::text, 'cut'))
ORDER BY attempt, seq LIMIT %(n)s
