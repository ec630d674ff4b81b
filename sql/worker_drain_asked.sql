-- worker_drain_asked: what the worker's own row says: has somebody asked it to drain?
-- params: worker_id bigint, name text
-- returns: (asked boolean, asked_by text), or no row: the database does not know this worker (any more). A failover may
--          have lost its row, and given the number to another one
-- locks: none
SELECT drain_asked_at IS NOT NULL AS asked, drain_asked_by AS asked_by FROM pgsched.workers
WHERE id = %(worker_id)s AND name = %(name)s
