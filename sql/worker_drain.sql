-- worker_drain: ask a worker to drain.
-- params: id bigint, asked_by text (null: the session's user)
-- returns: one row (id, name), or none where there is no such worker or it has stopped
-- locks: the worker's row. Repeating it is harmless.
UPDATE pgsched.workers
SET drain_asked_at = coalesce(drain_asked_at, clock_timestamp()),
    drain_asked_by = coalesce(drain_asked_by, %(asked_by)s::text, session_user::text)
WHERE id = %(id)s AND stopped_at IS NULL RETURNING id, name
