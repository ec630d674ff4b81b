-- The rows of workers.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: worker_drain
-- ask a worker to drain.
-- params: id bigint, asked_by text (null: the session's user)
-- returns: one row (id, name), or none where there is no such worker or it has stopped
-- locks: the worker's row. Repeating it is harmless.
UPDATE pgsched.workers
SET drain_asked_at = coalesce(drain_asked_at, clock_timestamp()),
    drain_asked_by = coalesce(drain_asked_by, %(asked_by)s::text, session_user::text)
WHERE id = %(id)s AND stopped_at IS NULL RETURNING id, name


-- name: worker_start
-- register this process.
-- params: name, hostname text, pid int, version text, app text, concurrency int, queues text[], kinds text[],
--         tasks text[], lease_s float8, clock_s float8 (the host's, since 1970), tz_version text,
--         pooler text (session or transaction, null: none is between it and the server),
--         declares text[] (the names of the jobs that its code declares; null: it does not say)
-- returns: id bigint
-- locks: the new row
INSERT INTO pgsched.workers (name, hostname, pid, version, app, concurrency, queues, kinds, tasks, lease,
    clock_ahead_s, tz_version, pooler, declares)
VALUES (%(name)s, %(hostname)s, %(pid)s, %(version)s, %(app)s, %(concurrency)s, %(queues)s, %(kinds)s, %(tasks)s,
        make_interval(secs => %(lease_s)s),
        %(clock_s)s - extract(epoch FROM clock_timestamp())::float8, %(tz_version)s, %(pooler)s, %(declares)s)
RETURNING id


-- name: worker_stop
-- say that this worker takes no more (stopping), or is gone (stopped).
-- params: worker_id bigint, name text (a failover may have given the number to another), stopped boolean
-- returns: nothing
-- locks: that row
UPDATE pgsched.workers SET stopping_at = coalesce(stopping_at, clock_timestamp()), seen_at = clock_timestamp(),
    stopped_at = CASE WHEN %(stopped)s THEN clock_timestamp() END
WHERE id = %(worker_id)s AND name = %(name)s
