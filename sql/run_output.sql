-- Output and progress of attempts.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: run_log_last
-- return the newest rows of a run's output.
-- params: id bigint, n int
-- returns: up to n rows (attempt, seq, at, stream, chunk), oldest first
-- locks: none
SELECT * FROM (
    SELECT attempt, seq, at, stream, chunk FROM pgsched.run_logs
    WHERE run_id = %(id)s ORDER BY run_id DESC, attempt DESC, seq DESC LIMIT %(n)s
) newest ORDER BY attempt, seq


-- name: run_log_read
-- return the output of a run from a position on, in the order in which it was written.
-- params: id bigint, after_attempt int, after_seq int, after_characters int (how much of that row the reader has),
--         attempt int (null: all), stream text (null: all), n int
-- returns: up to n rows (attempt, seq, at, stream, chunk, characters: the whole length); the stream 'cut' marks the
--          place where output was left out
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


-- name: run_log_write
-- add pages of output to the logs of attempts, and delete the rows that the pages replace.
-- params: parallel arrays of attempts: ids bigint[], attempts int[], tokens uuid[], bases int[] (null: not known yet),
--         los int[], his int[] (delete the rows from lo to before hi); parallel arrays of rows: ns int[] (the attempt's
--         position, from 1), seqs int[], streams text[], chunks text[]
-- Late output of a former owner is accepted if the run has evidence of its attempt: after a failover that lost runs,
-- the id may belong to another run.
-- returns: (n, base) of the attempts that may write: a row's seq in the table is base + seq, after what an earlier
--          claim wrote under the same attempt number. Missing: the attempt number belongs to another claim by now, or
--          the run is deleted.
-- locks: the written rows. Repeating the statement is harmless.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::text::bigint[], %(attempts)s::text::int[], %(tokens)s::text::uuid[],
                         %(bases)s::int[], %(los)s::text::int[], %(his)s::text::int[])
        WITH ORDINALITY AS g(run_id, attempt, token, base, lo, hi, n)
), mine AS MATERIALIZED (
    SELECT g.n, g.run_id, g.attempt, g.token, g.lo, g.hi, coalesce(g.base, (
        SELECT l.seq + 1 FROM pgsched.run_logs l
        WHERE l.run_id = g.run_id AND l.attempt = g.attempt AND l.token IS DISTINCT FROM g.token
        ORDER BY l.run_id DESC, l.attempt DESC, l.seq DESC LIMIT 1), 0) AS base
    FROM given g CROSS JOIN LATERAL (
        SELECT FROM pgsched.runs r
        WHERE r.id = g.run_id
          AND (r.token = g.token OR (r.attempt > g.attempt OR r.attempt = g.attempt AND r.token IS NULL)
               AND EXISTS (SELECT FROM pgsched.attempts a WHERE (a.run_id, a.token) = (g.run_id, g.token)))
        OFFSET 0
    ) own
), gone AS (
    DELETE FROM pgsched.run_logs l USING mine m
    WHERE l.run_id = m.run_id AND l.attempt = m.attempt AND l.token = m.token
      AND l.seq >= m.base + m.lo AND l.seq < m.base + m.hi
), kept AS (
    INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk, token)
    SELECT m.run_id, m.attempt, m.base + c.seq, c.stream, c.chunk, m.token
    FROM unnest(%(ns)s::text::int[], %(seqs)s::text::int[], %(streams)s::text[], %(chunks)s::text[])
        AS c(n, seq, stream, chunk) JOIN mine m ON m.n = c.n
    ON CONFLICT (run_id, attempt, seq) DO UPDATE SET stream = excluded.stream, chunk = excluded.chunk
        WHERE run_logs.token = excluded.token
)
SELECT n, base FROM mine


-- name: run_progress
-- record how far attempts are, each fenced by (id, token).
-- params: parallel arrays ids bigint[], tokens uuid[], progresses text[] (JSON objects: done, total, note)
-- returns: n of the written ones: their position in the arrays, from 1. The others are lost, or another transaction has
--          the row locked.
-- locks: row locks on those runs, skipping locked ones: a handler's own transaction may lock its run for long, and all
--        other attempts of the worker would wait for it
WITH mine AS MATERIALIZED (
    SELECT g.n, g.progress, found.id
    FROM unnest(%(ids)s::text::bigint[], %(tokens)s::text::uuid[], %(progresses)s::text[])
        WITH ORDINALITY AS g(id, token, progress, n)
    CROSS JOIN LATERAL (
        SELECT r.id FROM pgsched.runs r WHERE r.id = g.id AND r.token = g.token FOR NO KEY UPDATE OF r SKIP LOCKED
    ) found
)
UPDATE pgsched.runs r
SET progress = mine.progress::jsonb || jsonb_build_object('attempt', r.attempt, 'at', clock_timestamp())
FROM mine WHERE r.id = mine.id
RETURNING mine.n


-- name: run_watch
-- return the state of a run for a person who watches it.
-- params: id bigint
-- returns: one row, or none; progress is null unless the running or last attempt reported it
-- locks: none
SELECT r.id, r.state, r.kind, r.task, r.queue, j.name AS job, r.attempt, r.max_attempts, w.name AS worker,
    r.available_at, r.started_at, r.finished_at, r.reason, r.error, r.result, clock_timestamp() AS now,
    CASE WHEN (r.progress ->> 'attempt')::int = r.attempt THEN r.progress END AS progress
FROM pgsched.runs r LEFT JOIN pgsched.jobs j ON j.id = r.job_id LEFT JOIN pgsched.workers w ON w.id = r.worker_id
WHERE r.id = %(id)s


-- name: trace_keep
-- let the next attempts of these runs belong to the trace of the failed attempt.
-- params: parallel arrays ids bigint[], attempts int[], traces text[] (JSON objects)
-- returns: nothing
-- locks: the runs' rows, skipping locked ones
UPDATE pgsched.runs r SET options = coalesce(r.options, '{}') || jsonb_build_object('trace', f.trace)
FROM (SELECT o.id, k.trace::jsonb AS trace
      FROM unnest(%(ids)s::bigint[], %(attempts)s::int[], %(traces)s::text[]) AS k(id, attempt, trace)
      JOIN pgsched.runs o ON o.id = k.id AND o.attempt = k.attempt AND o.phase < 3 /* open */
      FOR NO KEY UPDATE OF o SKIP LOCKED) f
WHERE r.id = f.id
