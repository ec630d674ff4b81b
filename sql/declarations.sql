-- Jobs declared in code.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: declare_defaults
-- return the default of each column of jobs, for columns that a declaration does not set.
-- params: none
-- returns: (name, expression) of each column that has a default
-- locks: none
SELECT a.attname AS name, pg_catalog.pg_get_expr(d.adbin, d.adrelid) AS expression
FROM pg_catalog.pg_attrdef d JOIN pg_catalog.pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
WHERE d.adrelid = 'pgsched.jobs'::regclass


-- name: declare_holder
-- return the server process whose open transaction has locked a job.
-- params: name text
-- returns: pid int (null: no transaction has it locked any more), or no row: there is no such job
-- locks: none
SELECT (SELECT l.pid FROM pg_catalog.pg_locks l
        WHERE l.locktype = 'transactionid' AND l.granted AND l.transactionid = j.xmax LIMIT 1) AS pid
FROM pgsched.jobs j WHERE j.name = %(name)s


-- name: declare_lock_shared
-- let processes whose jobs are all as declared start at the same time, while no job is withdrawn.
-- params: none
-- returns: locked boolean: false if another process has been declaring for a second
-- locks: the row that declare_lock locks, shared, until the transaction ends
SELECT pgsched.share_declare_turn() AS locked


-- name: declare_lock
-- let workers that start at the same time reconcile their declarations one after another.
-- params: none
-- returns: locked boolean: false if another process has had the lock for 5 s
-- locks: a row of turns, until the transaction ends. One row for all apps, because two apps that declare the same names
--        in different orders would deadlock.
SELECT pgsched.take_declare_turn() AS locked


-- name: declare_others
-- check whether another process of this app is alive, or may come back. A process that did not sign off counts until it
-- is given up (prune_workers), and for grace_s after that: after an outage, live processes look gone too.
-- params: app text, grace_s float8
-- returns: others boolean
-- locks: none
SELECT EXISTS (
    SELECT FROM pgsched.workers WHERE app = %(app)s AND (stopped_at IS NULL OR stopping_at IS NULL
        AND stopped_at > clock_timestamp() - make_interval(secs => %(grace_s)s::float8))
) AS others


-- name: declare_removed
-- return the jobs that an app declared before and does not declare any more; delete them if `remove`.
-- params: declared_by text, names text[], remove boolean
-- returns: name
-- locks: the deleted rows
WITH gone AS (
    DELETE FROM pgsched.jobs
    WHERE %(remove)s AND declared_by = %(declared_by)s AND name <> ALL (%(names)s::text[]) RETURNING name
)
SELECT name FROM gone
UNION ALL
SELECT name FROM pgsched.jobs
WHERE NOT %(remove)s AND declared_by = %(declared_by)s AND name <> ALL (%(names)s::text[])


-- name: declare_squatted
-- return those of these jobs that were made by a role that may not declare: it is no worker, and the session's user is
-- not a member of it. None if no roles are in force.
-- params: names text[]
-- returns: (name, owner)
-- locks: none
SELECT j.name, j.owner
FROM pgsched.jobs j JOIN pg_catalog.pg_roles o ON o.rolname = j.owner
WHERE j.name = ANY (%(names)s::text[]) AND j.owner <> current_user
  AND EXISTS (SELECT FROM pg_catalog.pg_policies WHERE schemaname = 'pgsched' AND policyname = 'pgsched_all')
  AND NOT pg_catalog.pg_has_role(current_user, o.oid, 'MEMBER')
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles d WHERE d.rolname IN ('pgsched_worker', 'pgsched_owner')
                  AND pg_catalog.pg_has_role(o.oid, d.oid, 'MEMBER'))


-- name: declare_try_lock
-- take the lock of declare_lock without waiting, because another process may be declaring.
-- params: none
-- returns: locked boolean
-- locks: the same row
SELECT pgsched.try_declare_turn() AS locked


-- name: declare_withdraw
-- delete jobs that no process declares any more. Called under declare_try_lock.
-- params: ids bigint[]
-- returns: name text, app text
-- locks: those rows, skipping locked ones, which are being edited
WITH free AS MATERIALIZED (
    SELECT id FROM pgsched.jobs WHERE id = ANY (%(ids)s::bigint[]) AND declared_by IS NOT NULL FOR UPDATE SKIP LOCKED
)
DELETE FROM pgsched.jobs j USING free WHERE j.id = free.id RETURNING j.name, j.declared_by AS app


-- name: declare_withdrawn
-- return the jobs of running apps that no process of the app declares, nor has declared for grace_s. A process that has
-- not signed off counts until it is given up (prune_workers). A process that does not report its declarations may
-- declare anything. If no live process of an app reports them, its jobs are left alone.
-- params: grace_s float8, n int
-- returns: id bigint, name text, app text
-- locks: none
WITH counted AS MATERIALIZED (
    SELECT DISTINCT app, declares FROM pgsched.workers
    WHERE app IS NOT NULL
      AND (stopped_at IS NULL OR stopped_at > clock_timestamp() - make_interval(secs => %(grace_s)s::float8))
), at_work AS MATERIALIZED (
    SELECT DISTINCT app FROM pgsched.workers
    WHERE stopped_at IS NULL AND seen_at > clock_timestamp() - lease
      AND app NOT IN (SELECT app FROM counted WHERE declares IS NULL)
), declared AS MATERIALIZED (
    SELECT c.app, d.name FROM counted c CROSS JOIN LATERAL unnest(c.declares) AS d(name)
)
SELECT j.id, j.name, j.declared_by AS app
FROM at_work a JOIN pgsched.jobs j ON j.declared_by = a.app
WHERE (j.declared_by, j.name) NOT IN (SELECT app, name FROM declared)
LIMIT %(n)s


-- name: declared_by
-- return the app that owns a job.
-- params: name text
-- returns: declared_by text (null: the job was made by SQL)
-- locks: none
SELECT declared_by FROM pgsched.jobs WHERE name = %(name)s
