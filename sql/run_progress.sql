-- run_progress: say how far attempts are, each fenced by (id, token).
-- params: parallel arrays ids bigint[], tokens uuid[], progresses text[] (JSON objects: done, total, note)
-- returns: n of those written: their place in the arrays, from 1. The others are lost, or somebody holds the row.
-- locks: row locks on those runs, skipping those that others hold: a handler's own transaction may hold its run for
--        long, and all other attempts of the worker would wait for it
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
