-- Workers: their rows, tasks and queues.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: worker_drain
-- ask a worker to drain.
-- params: id bigint, asked_by text (null: the session's user)
-- returns: one row (id, name), or none if there is no such worker or it has stopped
-- locks: the worker's row. Repeating the statement is harmless.
UPDATE pgsched.workers
SET drain_asked_at = coalesce(drain_asked_at, clock_timestamp()),
    drain_asked_by = coalesce(drain_asked_by, %(asked_by)s::text, session_user::text)
WHERE id = %(id)s AND stopped_at IS NULL RETURNING id, name


-- name: worker_start
-- register this process.
-- params: name, hostname text, pid int, version text, app text, concurrency int, queues text[], kinds text[], tasks
--         text[], lease_s float8, clock_s float8 (the host's, since 1970), tz_version text, pooler text (session or
--         transaction, null: none is between it and the server), declares text[] (the names of the jobs that its code
--         declares; null: it does not report them), releases text[] (of each of its tasks, in their order; null: it
--         does not report them), fleet uuid (the database must belong to it; null: any)
-- returns: (id bigint, fleet uuid: the database's)
-- locks: the new row
INSERT INTO pgsched.workers (name, hostname, pid, version, app, concurrency, queues, kinds, tasks, lease,
    clock_ahead_s, tz_version, pooler, declares, releases)
VALUES (%(name)s, %(hostname)s, %(pid)s, %(version)s, %(app)s, %(concurrency)s, %(queues)s, %(kinds)s, %(tasks)s,
        make_interval(secs => %(lease_s)s),
        %(clock_s)s - extract(epoch FROM clock_timestamp())::float8, %(tz_version)s, %(pooler)s, %(declares)s,
        %(releases)s)
RETURNING id, pgsched.assert_fleet(%(fleet)s::uuid) AS fleet


-- name: worker_stop
-- record that this worker claims no more (stopping), or has ended (stopped). stopped_at is then a moment after seen_at.
-- If the leader gives a worker up, both are equal (prune_workers).
-- params: worker_id bigint, name text (a failover may have given the id to another worker), stopped boolean
-- returns: nothing
-- locks: that row
UPDATE pgsched.workers SET stopping_at = coalesce(stopping_at, clock_timestamp()), seen_at = clock_timestamp(),
    stopped_at = CASE WHEN %(stopped)s THEN clock_timestamp() + interval '1 microsecond' END
WHERE id = %(worker_id)s AND name = %(name)s


-- name: roles_of_login
-- return the roles by which the session's login could do more than make jobs and runs of its own; all of them for a
-- superuser. Before PostgreSQL 16, a login that may make roles could give itself any role, or take over another login
-- by its password.
-- params: none
-- returns: name
-- locks: none
SELECT r.rolname || CASE WHEN r.rolcreaterole THEN ' (CREATEROLE)' ELSE '' END AS name FROM pg_catalog.pg_roles r
WHERE (r.rolcreaterole OR r.rolname IN ('pgsched_owner', 'pgsched_worker', 'pgsched_leader', 'pgsched_operator',
                                        'pgsched_viewer', 'pgsched_console'))
  AND pg_catalog.pg_has_role(session_user, r.oid, 'MEMBER')
ORDER BY r.rolname


-- name: which_database
-- return what distinguishes this database from every other while its server runs, however it is reached.
-- params: none
-- returns: (server: when it started, database: its oid)
-- locks: none
SELECT pg_postmaster_start_time() AS server, oid::bigint AS database FROM pg_database WHERE datname = current_database()


-- name: names_known
-- return the names of one kind that are known, at most 10,000: tasks and queues that live workers, releases, jobs or
-- settings name, jobs, limits, live workers, owners of files, or locks.
-- params: what text: task, queue, job, limit, worker, owner or lock
-- returns: name
-- locks: none
WITH alive AS (
    SELECT name, tasks, queues FROM pgsched.workers
    WHERE stopped_at IS NULL AND stopping_at IS NULL AND seen_at > clock_timestamp() - lease
), found (what, name) AS (
    SELECT 'task', unnest(tasks) FROM alive
    UNION SELECT 'task', task FROM pgsched.jobs WHERE kind = 'task'
    UNION SELECT 'task', task FROM pgsched.tasks
    UNION SELECT 'queue', unnest(queues) FROM alive
    UNION SELECT 'queue', queue FROM pgsched.jobs WHERE queue IS NOT NULL
    UNION SELECT 'queue', name FROM pgsched.queues
    UNION SELECT 'queue', 'default'
    UNION SELECT 'job', name FROM pgsched.jobs
    UNION SELECT 'limit', name FROM pgsched.limits
    UNION SELECT 'worker', name FROM alive
    UNION SELECT 'owner', name FROM pgsched.file_owners
    UNION SELECT 'lock', name FROM pgsched.lock_list(most => 10000, only_used => false) WHERE %(what)s = 'lock'
)
SELECT name FROM found WHERE what = %(what)s ORDER BY name LIMIT 10000


-- name: names_of_runs
-- return the queues, tasks or tags of the newest runs.
-- params: what text: queue, task or tag; n int: how many runs are read
-- returns: name
-- locks: none
WITH newest AS (
    SELECT queue, task, kind, tags FROM pgsched.runs ORDER BY id DESC LIMIT %(n)s
), found (what, name) AS (
    SELECT 'queue', queue FROM newest
    UNION SELECT 'task', task FROM newest WHERE kind = 'task'
    UNION SELECT 'tag', unnest(tags) FROM newest
)
SELECT name FROM found WHERE what = %(what)s


-- name: tasks_offered
-- return the tasks that live workers offer.
-- params: none
-- returns: name
-- locks: none
SELECT DISTINCT unnest(tasks) AS name FROM pgsched.workers
WHERE stopped_at IS NULL AND stopping_at IS NULL AND seen_at > clock_timestamp() - lease LIMIT 10000


-- name: tasks_known
-- return the newest release of each task that an app has registered, and the tasks that live workers offer, by name.
-- params: task text (null: all), n int
-- returns: (task, app, release, options, schema, first_seen_at, releases: how many are registered; workers text[]: the
--          live workers that offer it); release, options, schema and first_seen_at are null if it is only offered
-- locks: none
WITH offered AS (
    SELECT w.task, coalesce(w.app, '') AS app, array_agg(w.name ORDER BY w.name) AS workers
    FROM (SELECT name, app, unnest(tasks) AS task FROM pgsched.workers
          WHERE stopped_at IS NULL AND stopping_at IS NULL AND seen_at > clock_timestamp() - lease) w
    WHERE %(task)s::text IS NULL OR w.task = %(task)s::text GROUP BY 1, 2
), newest AS (
    SELECT DISTINCT ON (t.task, t.app) t.task, t.app, t.release, t.options, t.schema, t.first_seen_at,
        count(*) OVER (PARTITION BY t.task, t.app) AS releases
    FROM pgsched.tasks t WHERE %(task)s::text IS NULL OR t.task = %(task)s::text
    ORDER BY t.task, t.app, t.first_seen_at DESC
)
SELECT task, nullif(app, '') AS app, n.release, n.options, n.schema, n.first_seen_at,
    coalesce(n.releases, 0)::int AS releases, coalesce(o.workers, '{}') AS workers
FROM newest n FULL JOIN offered o USING (task, app) ORDER BY task, app LIMIT %(n)s


-- name: tasks_open_runs
-- count the open runs of tasks by state. At most `most` runs of each phase are read, each through its index.
-- params: task text (null: all), most int
-- returns: (task, state, runs)
-- locks: none
SELECT task, state, count(*)::int AS runs FROM (
    (SELECT kind, task, state FROM pgsched.runs WHERE phase = 2 /* claimable */ LIMIT %(most)s)
    UNION ALL (SELECT kind, task, state FROM pgsched.runs WHERE phase = 1 /* scheduled */ LIMIT %(most)s)
    UNION ALL (SELECT kind, task, state FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NULL LIMIT %(most)s)
    UNION ALL (SELECT kind, task, state FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NOT NULL LIMIT %(most)s)
) r WHERE kind = 'task' AND (%(task)s::text IS NULL OR task = %(task)s::text) GROUP BY 1, 2


-- name: tasks_ended_lately
-- count the runs of tasks that ended within the last 24 hours, in full hours, from what was counted.
-- params: task text (null: all)
-- returns: (task: its first 100 characters, state, runs)
-- locks: none
SELECT task, state, sum(runs)::bigint AS runs FROM pgsched.rollups
WHERE width = 'hour' AND from_at > clock_timestamp() - interval '25 hours'
  AND (%(task)s::text IS NULL OR task = left(%(task)s::text, 100)) GROUP BY 1, 2


-- name: other_queues
-- return the queues that anything other than this job names.
-- params: job bigint
-- returns: name
-- locks: none
SELECT unnest(queues) AS name FROM pgsched.workers
WHERE stopped_at IS NULL AND stopping_at IS NULL AND seen_at > clock_timestamp() - lease
UNION SELECT queue FROM pgsched.jobs WHERE id <> %(job)s AND queue IS NOT NULL
UNION SELECT name FROM pgsched.queues
UNION SELECT 'default'
LIMIT 10000


-- name: task_check_args
-- check arguments against the schema that the newest release of a task has registered.
-- params: task text, args text (JSON)
-- returns: (fits boolean, null: not known; problem text, null: none)
-- locks: none
SELECT fits, problem FROM pgsched.check_args(%(task)s::text, %(args)s::text::jsonb)


-- name: task_schema
-- return the schema of a task's arguments that its newest release has registered, as check_args reads it.
-- params: task text
-- returns: schema jsonb ({}: not known), or no row
-- locks: none
SELECT schema FROM pgsched.tasks WHERE task = %(task)s::text ORDER BY first_seen_at DESC, app LIMIT 1


-- name: task_names
-- return the names of the tasks that are registered, or that live workers offer.
-- params: none
-- returns: name
-- locks: none
SELECT task AS name FROM pgsched.tasks
UNION SELECT unnest(tasks) FROM pgsched.workers
WHERE stopped_at IS NULL AND stopping_at IS NULL AND seen_at > clock_timestamp() - lease
ORDER BY name LIMIT 1000


-- name: task_register
-- register the tasks of an app; tasks that are known already do not change.
-- params: app text, tasks jsonb: an array of {"task", "release", "options", "schema"}
-- returns: owner: null, or the role that owns the app if that is not the caller's: then nothing is registered
-- locks: the row `tasks` of turns, if something is new
SELECT pgsched.register_tasks(%(app)s::text, %(tasks)s::jsonb)::text AS owner


-- name: task_limits
-- make the limits that an app's tasks declare what the newest releases say.
-- params: app text, update boolean (false: only make those that are missing)
-- returns: (name, done: created, updated, removed) of each limit that was written
-- locks: the limits that differ
SELECT name, done FROM pgsched.declare_limits(%(app)s::text, %(update)s::boolean)


-- name: task_standing
-- check whether this release of a task has the schema of the newest registered release.
-- params: app text, task text, release text
-- returns: standing: newest; older: a live worker has the newest; alone: older, and no live worker has the newest. No
--          row: this release is not registered
-- locks: none
SELECT CASE WHEN m.schema = n.schema THEN 'newest'
            WHEN EXISTS (
                SELECT FROM pgsched.workers w
                WHERE w.app = n.app AND w.stopped_at IS NULL AND w.stopping_at IS NULL
                  AND w.seen_at > pg_catalog.clock_timestamp() - w.lease
                  AND w.releases[pg_catalog.array_position(w.tasks, n.task)] = n.release
            ) THEN 'older' ELSE 'alone' END AS standing
FROM pgsched.tasks m CROSS JOIN LATERAL (
    SELECT t.* FROM pgsched.tasks t WHERE t.task = m.task AND t.app = m.app ORDER BY t.first_seen_at DESC LIMIT 1
) n
WHERE m.task = %(task)s::text AND m.app = %(app)s::text AND m.release = %(release)s::text


-- name: queue_has_runs
-- check whether a queue has runs that wait or run.
-- params: name text
-- returns: found boolean
-- locks: none
SELECT EXISTS (SELECT FROM pgsched.runs WHERE phase = 2 /* claimable */ AND queue = %(name)s)
    OR EXISTS (SELECT FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NOT NULL AND queue = %(name)s)
    AS found


-- name: lost_note
-- record which runs lost workers had, of claims that were just taken back, in addition to those recorded before. A run
-- that another worker has claimed in the meantime is not recorded.
-- params: ids text (an array of bigint)
-- returns: (id, task, worker: its name, null if unknown) of those runs
-- locks: the rows of those workers, skipping locked ones
WITH held AS (
    SELECT r.worker_id, CASE WHEN r.kind = 'task' THEN left(r.task, 200) ELSE '(' || r.kind || ')' END AS task, count(*) AS n
    FROM pgsched.runs r WHERE r.id = ANY (%(ids)s::text::bigint[]) AND r.worker_id IS NOT NULL GROUP BY 1, 2
), first AS (
    SELECT worker_id, task, n, row_number() OVER (PARTITION BY worker_id ORDER BY n DESC, task) AS place FROM held
), told AS (
    SELECT worker_id, jsonb_object_agg(CASE WHEN place <= 20 THEN task ELSE '...' END, n) AS lost
    FROM (SELECT worker_id, least(place, 21) AS place, min(task) AS task, sum(n) AS n FROM first GROUP BY 1, 2) f GROUP BY 1
), noted AS (
    UPDATE pgsched.workers w SET lost_runs = told.lost || coalesce((
        SELECT jsonb_object_agg(e.key, e.value::bigint + coalesce((told.lost ->> e.key)::bigint, 0))
        FROM jsonb_each_text(w.lost_runs) e), '{}')
    FROM told WHERE w.id = told.worker_id AND coalesce(pg_column_size(w.lost_runs), 0) < 32768
      AND w.id IN (SELECT l.id FROM pgsched.workers l WHERE l.id IN (SELECT worker_id FROM told) FOR UPDATE SKIP LOCKED)
)
SELECT r.id, CASE WHEN r.kind = 'task' THEN left(r.task, 200) ELSE '(' || r.kind || ')' END AS task, w.name AS worker
FROM pgsched.runs r LEFT JOIN pgsched.workers w ON w.id = r.worker_id WHERE r.id = ANY (%(ids)s::text::bigint[])
