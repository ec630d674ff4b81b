-- worker_start: register this process.
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
