-- run_log_write: add pages of output to the logs of attempts, and take away the rows that the pages replace.
-- params: parallel arrays of attempts: ids bigint[], attempts int[], tokens uuid[], bases int[] (null: not known yet),
--         los int[], his int[] (rows from lo to before hi go); parallel arrays of rows: ns int[] (place of the
--         attempt, from 1), seqs int[], streams text[], chunks text[]
-- Last words of a former owner are taken where the run knows it by its evidence: after a failover that lost runs, the
-- number may be another's.
-- returns: (n, base) of the attempts that may write: a row's seq in the table is base + seq, behind what an earlier
--          claim wrote under the same attempt number. Absent: a zombie whose number belongs to another claim by now, or
--          the run is gone.
-- locks: the rows written. Repeating it is harmless.
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
