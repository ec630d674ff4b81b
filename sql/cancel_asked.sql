-- cancel_asked: which of the claims that this worker holds somebody wants cancelled; asked between two heartbeats.
-- params: parallel arrays ids bigint[], tokens uuid[]
-- returns: (id, token)
-- locks: none. Each claim is looked up by its key, whatever the statistics say.
SELECT asked.id, asked.token
FROM unnest(%(ids)s::text::bigint[], %(tokens)s::text::uuid[]) AS g(id, token) CROSS JOIN LATERAL (
    SELECT r.id, r.token FROM pgsched.runs r
    WHERE (r.id, r.token) = (g.id, g.token) AND r.state = 'running' AND r.cancel_requested_at IS NOT NULL
    OFFSET 0
) asked
