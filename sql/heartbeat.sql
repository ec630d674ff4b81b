-- heartbeat: renew the lease of every claim this worker holds, and the worker's own row.
-- params: worker_id bigint, lease_s float8, running int, abandoned int, stopping boolean, blocked_s float8 (for how long
--         its loop has not turned; null: it turns), blocked_by text, clock_s float8 (the host's, since 1970), parallel
--         arrays ids bigint[], tokens uuid[], name text
-- returns: (id, token, cancel, renewed, null) of the claims still ours; a claim that is absent was lost. cancel: somebody
--          asked. Not renewed: somebody holds the row, the next heartbeat will tell. And (null, null, drain: somebody
--          asked the worker for that, null, drain_asked_by), or no such row: the database does not know a worker of this
--          number and name (any more): a failover may have lost its row, and given the number to another one, or it was
--          silent for so long that it counts as stopped. Then it has to register again, and its row stays as it is,
--          unless it is to drain anyhow.
-- locks: row locks on those runs, skipping those that others hold: one row that a person has locked must not cost
--        all the others their lease. A worker that has stopped stays stopped. Each claim is looked up by its key,
--        whatever the statistics say.
WITH me AS (
    UPDATE pgsched.workers SET seen_at = clock_timestamp(), running = %(running)s, abandoned = %(abandoned)s,
        blocked_at = clock_timestamp() - make_interval(secs => %(blocked_s)s::float8), blocked_by = %(blocked_by)s,
        clock_ahead_s = %(clock_s)s::float8 - extract(epoch FROM clock_timestamp())::float8,
        stopping_at = CASE WHEN %(stopping)s THEN coalesce(stopping_at, clock_timestamp()) ELSE stopping_at END,
        stopped_at = CASE WHEN stopping_at IS NOT NULL THEN stopped_at END
    WHERE id = (SELECT id FROM pgsched.workers WHERE id = %(worker_id)s AND name = %(name)s
                  AND (stopped_at IS NULL OR coalesce(stopping_at, drain_asked_at) IS NOT NULL OR %(stopping)s)
                FOR NO KEY UPDATE SKIP LOCKED)
), given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::text::bigint[], %(tokens)s::text::uuid[]) AS g(id, token)
), mine AS MATERIALIZED (
    SELECT found.id FROM given g CROSS JOIN LATERAL (
        SELECT r.id FROM pgsched.runs r
        WHERE r.id = g.id AND r.token = g.token AND r.state = 'running'
        FOR NO KEY UPDATE OF r SKIP LOCKED
    ) found
), renewed AS (
    UPDATE pgsched.runs r SET lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
    FROM mine WHERE r.id = mine.id
    RETURNING r.id, r.token, r.cancel_requested_at
)
SELECT id, token, cancel_requested_at IS NOT NULL AS cancel, true AS renewed, NULL AS asked_by FROM renewed
UNION ALL
SELECT held.id, held.token, held.cancel_requested_at IS NOT NULL, false, NULL
FROM given g CROSS JOIN LATERAL (
    SELECT r.id, r.token, r.cancel_requested_at FROM pgsched.runs r
    WHERE (r.id, r.token) = (g.id, g.token) AND r.state = 'running'
    OFFSET 0
) held
WHERE g.id NOT IN (SELECT id FROM renewed)
UNION ALL
SELECT NULL, NULL, drain_asked_at IS NOT NULL, NULL, drain_asked_by FROM pgsched.workers
WHERE id = %(worker_id)s AND name = %(name)s
  AND (stopped_at IS NULL OR coalesce(stopping_at, drain_asked_at) IS NOT NULL OR %(stopping)s)
