-- dependencies_waits: the runs that a run still waits for.
-- params: id bigint
-- returns: parent_id, the oldest first; at most a hundred
-- locks: none
SELECT d.parent_id FROM pgsched.dependencies d JOIN pgsched.runs r ON r.id = d.run_id
WHERE d.run_id = %(id)s AND d.state = 'open' AND r.state = 'waiting' ORDER BY d.parent_id LIMIT 100
