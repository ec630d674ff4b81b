-- web_relatives: the runs that a run waits for, and those that wait for it, up to n each.
-- params: id bigint, n int
-- returns: (side: before or behind, id, state, task, edge: met, failed or open, on_failure), by id; state is null of a
--          run that was pruned
-- locks: none
SELECT e.side, e.id, r.state, r.task, e.edge, e.on_failure
FROM (
    (SELECT 'before' AS side, parent_id AS id, state AS edge, on_failure FROM pgsched.dependencies
     WHERE run_id = %(id)s ORDER BY parent_id LIMIT %(n)s)
    UNION ALL
    (SELECT 'behind', run_id, state, on_failure FROM pgsched.dependencies
     WHERE parent_id = %(id)s ORDER BY parent_id, run_id LIMIT %(n)s)
) e LEFT JOIN LATERAL (SELECT state, task FROM pgsched.runs f WHERE f.id = e.id OFFSET 0) r ON true
ORDER BY e.side, e.id
