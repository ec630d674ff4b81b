-- limit_unapplied: queues whose limits were changed since the leader applied them.
-- params: none
-- returns: queue
-- locks: none
SELECT name AS queue FROM pgsched.queues WHERE applied_at IS NULL ORDER BY name
