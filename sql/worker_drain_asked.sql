-- worker_drain_asked: who asked a worker to drain.
-- params: worker_id bigint
-- returns: drain_asked_by, or no row where nobody did
-- locks: none
SELECT drain_asked_by FROM pgsched.workers WHERE id = %(worker_id)s AND drain_asked_at IS NOT NULL
