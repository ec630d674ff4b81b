-- heartbeat: renew the lease of every claim this worker holds, and the worker's own row.
-- params: worker_id bigint, lease_s float8, running int, abandoned int, ids bigint[], tokens uuid[] (parallel)
-- returns: (id, token, cancel) of the claims still ours; a claim that is absent was lost. cancel: somebody asked.
-- locks: row locks on those runs, in id order
WITH me AS (
    UPDATE pgsched.workers SET seen_at = clock_timestamp(), stopped_at = NULL, running = %(running)s,
        abandoned = %(abandoned)s
    WHERE id = %(worker_id)s
), mine AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(tokens)s::uuid[]) AS g(id, token) ORDER BY id
)
UPDATE pgsched.runs r SET lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
FROM mine WHERE r.id = mine.id AND r.token = mine.token AND r.state = 'running'
RETURNING r.id, r.token, r.cancel_requested_at IS NOT NULL AS cancel
