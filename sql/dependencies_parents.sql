-- dependencies_parents: the runs that a run waited for, with their results.
-- params: id bigint
-- returns: (id, task, state, result, error), the oldest first
-- locks: none
SELECT p.id, p.task, p.state, p.result, p.error
FROM pgsched.dependencies d JOIN pgsched.runs p ON p.id = d.parent_id
WHERE d.run_id = %(id)s ORDER BY p.id
