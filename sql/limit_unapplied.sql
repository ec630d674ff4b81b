-- limit_unapplied: the queues and limits that were changed since the leader applied them.
-- params: none
-- returns: (queue: null for a limit, name, version: of its row, so that a further change is not taken for this one)
-- locks: none
SELECT name AS queue, name, xmin::text AS version FROM pgsched.queues WHERE applied_at IS NULL
UNION ALL
SELECT NULL, name, xmin::text FROM pgsched.limits WHERE applied_at IS NULL
ORDER BY 1, 2
