-- run_progress: say how far attempts are, each fenced by (id, token, running).
-- params: parallel arrays ids bigint[], tokens uuid[], progresses text[] (JSON objects: done, total, note)
-- returns: nothing
-- locks: row locks on those runs, in the order given: by id
UPDATE pgsched.runs r
SET progress = g.progress::jsonb || jsonb_build_object('attempt', r.attempt, 'at', clock_timestamp())
FROM unnest(%(ids)s::text::bigint[], %(tokens)s::text::uuid[], %(progresses)s::text[]) AS g(id, token, progress)
WHERE r.id = g.id AND CASE WHEN r.token = g.token AND r.state = 'running' THEN true END
