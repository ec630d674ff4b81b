-- dependencies_tree: the graph that a run belongs to.
-- params: id bigint
-- returns: one row for each run, the oldest first: (id, state, task, queue, attempt, max_attempts, started_at, finished_at,
--          reason, error, parents jsonb: [{id, on_failure, any_of, state}], now); a run that was pruned has only an id
-- locks: none
SELECT g.id, r.state, r.task, r.queue, r.attempt, r.max_attempts, r.started_at, r.finished_at, r.reason, r.error,
    (SELECT coalesce(jsonb_agg(jsonb_build_object('id', d.parent_id, 'on_failure', d.on_failure, 'any_of', d.any_of,
                                                  'state', d.state) ORDER BY d.parent_id), '[]')
     FROM pgsched.dependencies d WHERE d.run_id = g.id) AS parents, clock_timestamp() AS now
FROM pgsched.run_graph(%(id)s) AS g(id) LEFT JOIN LATERAL (
    SELECT * FROM pgsched.runs f WHERE f.id = g.id OFFSET 0) r ON true
ORDER BY g.id
