-- settle_missing: what became of settlements that `settle` did not record.
-- params: parallel arrays ids bigint[], tokens uuid[]
-- returns: (n, verdict), n the place in the arrays, from 1: 'repeated' when this very settlement had arrived before; 'lost' when another attempt
--          owns the run or it was taken away (the late write of a zombie)
-- locks: none
SELECT g.n, CASE WHEN r.token = g.token AND r.state <> 'running' THEN 'repeated' ELSE 'lost' END AS verdict
FROM unnest(%(ids)s::text::bigint[], %(tokens)s::text::uuid[]) WITH ORDINALITY AS g(id, token, n)
LEFT JOIN pgsched.runs r ON r.id = g.id
