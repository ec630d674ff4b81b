-- Jobs declared in code, and what files of jobs declare.
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


-- name: file_owner
-- return who may use the name of a file's owner.
-- params: name text
-- returns: (role, allowed: whether the caller may use it), or no row: nobody has used it, or the caller may not see it
-- locks: none
SELECT o.role::text AS role, pgsched.may_use_file(o.role) AS allowed FROM pgsched.file_owners o WHERE o.name = %(name)s


-- name: file_owner_add
-- let the name of a file's owner belong to the caller, if it belongs to nobody.
-- params: name text
-- returns: name, or no row: it belongs to somebody
-- locks: that row
INSERT INTO pgsched.file_owners (name) VALUES (%(name)s) ON CONFLICT (name) DO NOTHING RETURNING name


-- name: file_owner_lock
-- let applies of files with the same owner take turns.
-- params: name text
-- returns: (role, allowed) as file_owner does
-- locks: that row, until the transaction ends
SELECT o.role::text AS role, pgsched.may_use_file(o.role) AS allowed FROM pgsched.file_owners o WHERE o.name = %(name)s
FOR NO KEY UPDATE


-- name: file_owner_applied
-- note when an apply changed something last.
-- params: name text
-- returns: name
-- locks: that row
UPDATE pgsched.file_owners SET applied_at = clock_timestamp() WHERE name = %(name)s RETURNING name


-- name: file_entries
-- return what files declare: all that this file has and its owner declares.
-- params: owner text, what text[], names text[] (pairs)
-- returns: (what, name, owner, object_id, decides, run_at), also of what = done, of this owner only
-- locks: none
SELECT e.what, e.name, e.owner, e.object_id, e.decides, e.run_at FROM pgsched.file_entries e WHERE e.owner = %(owner)s
UNION
SELECT e.what, e.name, e.owner, e.object_id, e.decides, e.run_at
FROM unnest(%(what)s::text[], %(names)s::text[]) w(what, name)
JOIN pgsched.file_entries e ON e.what = w.what AND e.name = w.name


-- name: file_entries_owned
-- return what all files declare.
-- params: none
-- returns: (what, name, owner, object_id, decides, run_at)
-- locks: none
SELECT e.what, e.name, e.owner, e.object_id, e.decides, e.run_at FROM pgsched.file_entries e WHERE e.what <> 'done'


-- name: file_entries_add
-- declare objects with the file of an owner. One that another owner declares is taken from there, if `adopt`.
-- params: owner text, what text[], names text[], decides text[] (of each the columns, with spaces between), run_at text[],
--         adopt boolean
-- returns: (what, name) of those that are declared by it now; the others belong to another owner
-- locks: those rows
INSERT INTO pgsched.file_entries AS e (owner, what, name, decides, run_at)
SELECT %(owner)s, w.what, w.name, string_to_array(w.decides, ' '), w.run_at::timestamptz
FROM unnest(%(what)s::text[], %(names)s::text[], %(decides)s::text[], %(run_at)s::text[]) w(what, name, decides, run_at)
ON CONFLICT (what, name) WHERE what <> 'done' DO UPDATE
    SET owner = excluded.owner, decides = excluded.decides, run_at = excluded.run_at
    WHERE e.owner = excluded.owner OR %(adopt)s
RETURNING e.what, e.name


-- name: file_decides
-- return whose file declares a job, and which of its columns mode and paused the file names.
-- params: name text
-- returns: (owner, decides), or no row: no file that the caller may see declares it
-- locks: none
SELECT e.owner, e.decides FROM pgsched.jobs j
JOIN pgsched.file_entries e ON e.what = 'job' AND e.name = j.name AND e.object_id = j.id
WHERE j.name = %(name)s


-- name: file_entries_drop
-- forget entries whose objects are gone.
-- params: owner text, what text[], names text[] (pairs)
-- returns: (what, name)
-- locks: those rows
DELETE FROM pgsched.file_entries e USING unnest(%(what)s::text[], %(names)s::text[]) w(what, name)
WHERE e.owner = %(owner)s AND e.what = w.what AND e.name = w.name RETURNING e.what, e.name


-- name: file_jobs
-- return jobs with all their columns.
-- params: names text[] (null: all)
-- returns: (row: the row as JSON without args and keep; args; keep: intervals as text; parents: the names of after_jobs, of
--          one that is gone a control character and its id; excluded: the rows of its calendar)
-- locks: none
SELECT to_jsonb(j) - '{args,keep,after_jobs}'::text[] AS row, j.args,
    CASE WHEN j.keep IS NOT NULL THEN coalesce((
        SELECT jsonb_object_agg(k.key, (k.value #>> '{}')::interval::text) FROM jsonb_each(j.keep) k), '{}') END AS keep,
    (SELECT json_agg(coalesce(p.name, chr(1) || a.id)) FROM unnest(j.after_jobs) a(id)
     LEFT JOIN pgsched.jobs p ON p.id = a.id) AS parents,
    (SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason)) FROM pgsched.job_calendars c
     WHERE c.job_id = j.id) AS excluded
FROM pgsched.jobs j WHERE %(names)s::text[] IS NULL OR j.name = ANY (%(names)s::text[])
ORDER BY j.name


-- name: file_fleet
-- return the schedules of all jobs that are not in a file.
-- params: names text[] (the jobs of the file), n int
-- returns: (id, name, schedule, timezone, anchor_at, starts_at, jitter, ends_at, calendar, on_excluded, shifts, excluded: the
--          rows of its own dates), at most n rows; none of those that have had all their runs
-- locks: none
SELECT j.id, j.name, j.schedule, j.timezone, j.anchor_at, j.starts_at, j.jitter, j.ends_at, j.calendar, j.on_excluded,
    j.shifts,
    (SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason)) FROM pgsched.job_calendars c
     WHERE c.job_id = j.id) AS excluded
FROM pgsched.jobs j
WHERE j.schedule IS NOT NULL AND coalesce(j.run_count < j.max_runs, true)
    AND NOT EXISTS (SELECT FROM unnest(%(names)s::text[]) w(name) WHERE w.name = j.name)
ORDER BY j.id LIMIT %(n)s


-- name: file_users
-- return the jobs that use calendars.
-- params: calendars text[], n int
-- returns: name, at most n rows
-- locks: none
SELECT j.name FROM pgsched.jobs j WHERE j.calendar = ANY (%(calendars)s::text[]) ORDER BY j.calendar, j.name LIMIT %(n)s


-- name: file_settings
-- return queues, limits and pauses.
-- params: none
-- returns: (what, name, declared_by, row: the row as JSON)
-- locks: none
SELECT 'queue' AS what, q.name, NULL AS declared_by, to_jsonb(q) || jsonb_build_object('keep',
        CASE WHEN q.keep IS NOT NULL THEN coalesce((
            SELECT jsonb_object_agg(k.key, (k.value #>> '{}')::interval::text) FROM jsonb_each(q.keep) k), '{}') END) AS row
FROM pgsched.queues q
UNION ALL
SELECT 'limit', l.name, l.declared_by, to_jsonb(l) FROM pgsched.limits l
UNION ALL
SELECT 'pause', btrim(p.what || ' ' || p.name), NULL, to_jsonb(p) FROM pgsched.pauses p
WHERE p.what <> 'limit' AND coalesce(p.resume_at > clock_timestamp(), true)
ORDER BY 1, 2


-- name: file_calendars
-- return calendars with their times.
-- params: none
-- returns: (what, name, declared_by, row: the row as JSON)
-- locks: none
SELECT 'calendar' AS what, c.name, NULL AS declared_by, to_jsonb(c) || jsonb_build_object('times',
        (SELECT jsonb_agg(to_jsonb(t)) FROM pgsched.calendar_times t WHERE t.calendar = c.name)) AS row
FROM pgsched.calendars c ORDER BY c.name


-- name: file_retention
-- return how long everything is kept.
-- params: none
-- returns: (what, name, declared_by, row: the row as JSON)
-- locks: none
SELECT 'retention' AS what, r.name, NULL AS declared_by, to_jsonb(r) || jsonb_build_object('keep', coalesce(
        (SELECT jsonb_object_agg(k.key, (k.value #>> '{}')::interval::text) FROM jsonb_each(r.keep) k), '{}')) AS row
FROM pgsched.retention r


-- name: file_alerts
-- return what is watched where a job does not say it.
-- params: none
-- returns: (what, name, declared_by, row: the row as JSON)
-- locks: none
SELECT 'alerts' AS what, d.name, NULL AS declared_by, to_jsonb(d) AS row FROM pgsched.alert_defaults d


-- name: file_readable
-- return which settings the caller may read: a producer may not read all.
-- params: none
-- returns: (calendars, retention, alerts), booleans
-- locks: none
SELECT has_table_privilege('pgsched.calendars', 'SELECT') AND has_table_privilege('pgsched.calendar_times', 'SELECT') AS calendars,
    has_table_privilege('pgsched.retention', 'SELECT') AS retention,
    has_table_privilege('pgsched.alert_defaults', 'SELECT') AS alerts


-- name: file_job_errors
-- return what is wrong with jobs that are not written yet, in the words in which an INSERT refuses them.
-- params: rows jsonb (an array of objects with the columns of jobs)
-- returns: (name, problem) of those that would be refused
-- locks: none
SELECT w.name, p.problem
FROM jsonb_populate_recordset(NULL::pgsched.jobs, %(rows)s::jsonb) w
LEFT JOIN pgsched.jobs j ON w.schedule IS NULL AND j.name = w.name
CROSS JOIN LATERAL (SELECT coalesce(pgsched.job_error(w),
    CASE WHEN w.keep IS NOT NULL THEN pgsched.keep_error(w.keep) END,
    -- as the trigger e_refuse_unstarted
    CASE WHEN w.overlap IN ('replace', 'terminate') AND w.jitter > pgsched.every_interval(w.schedule) THEN
        format('jitter: %%s is longer than the interval of the schedule: under overlap "%%s" a slot would end the one before '
            'it, which has not started', w.jitter, w.overlap) END,
    -- as pgsched.edit_once
    CASE WHEN j.schedule IS NULL AND w.run_at <> j.run_at AND w.run_at <= greatest(j.decided_until,
            CASE WHEN j.run_at <= clock_timestamp() THEN j.run_at END)
        OR j.schedule IS NOT NULL AND w.run_at <= clock_timestamp() THEN
        format('run_at: %%s is not later than %%s, which is already decided', w.run_at,
            CASE WHEN j.schedule IS NULL THEN greatest(j.decided_until, j.run_at) ELSE clock_timestamp() END) END) AS problem) p
WHERE p.problem IS NOT NULL


-- name: file_jobs_unwait
-- let jobs wait for none, before they are set to wait for others: the rows of one statement see each other's old lists.
-- params: names text[]
-- returns: name
-- locks: those jobs
UPDATE pgsched.jobs j SET after_jobs = NULL WHERE j.name = ANY (%(names)s::text[]) RETURNING j.name


-- name: file_parents
-- return the jobs before jobs: those that they wait for, those that these wait for, and so on.
-- params: names text[]
-- returns: (name, parents: the names of those that it waits for)
-- locks: none
WITH RECURSIVE before AS (
    SELECT j.id FROM pgsched.jobs j WHERE j.name = ANY (%(names)s::text[])
    UNION
    SELECT unnest(j.after_jobs) FROM before b JOIN pgsched.jobs j ON j.id = b.id
)
SELECT j.name, (SELECT json_agg(p.name) FROM unnest(j.after_jobs) a(id) JOIN pgsched.jobs p ON p.id = a.id) AS parents
FROM before b JOIN pgsched.jobs j ON j.id = b.id WHERE j.after_jobs IS NOT NULL


-- name: file_jobs_wait
-- set the jobs that jobs wait for, by name.
-- params: rows jsonb (an array of [name, [names of parents]])
-- returns: (name, missing: how many of its parents do not exist)
-- locks: those jobs
UPDATE pgsched.jobs j SET after_jobs = p.ids
FROM jsonb_array_elements(%(rows)s::jsonb) r(e) CROSS JOIN LATERAL (
    SELECT array_agg(o.id ORDER BY o.id) AS ids, count(*) AS found FROM pgsched.jobs o
    WHERE o.name IN (SELECT jsonb_array_elements_text(r.e -> 1))
) p
WHERE j.name = r.e ->> 0
RETURNING j.name, jsonb_array_length(r.e -> 1) - p.found AS missing


-- name: file_dates_clear
-- remove the excluded dates of jobs.
-- params: names text[]
-- returns: gone bigint
-- locks: those rows, and the rows of the jobs
SELECT count(*) AS gone
FROM unnest(%(names)s::text[]) w(name) CROSS JOIN LATERAL pgsched.include_dates(w.name, '1970-01-01', '8999-12-31') g


-- name: file_dates_add
-- add excluded dates of jobs.
-- params: rows jsonb (an array of [name of the job, first date, last date, reason])
-- returns: from_date
-- locks: those rows, and the rows of the jobs
INSERT INTO pgsched.job_calendars (job_id, from_date, until_date, reason)
SELECT j.id, (r.e ->> 1)::date, (r.e ->> 2)::date, r.e ->> 3
FROM jsonb_array_elements(%(rows)s::jsonb) r(e) JOIN pgsched.jobs j ON j.name = r.e ->> 0
RETURNING from_date


-- name: file_jobs_delete
-- delete jobs. A trigger cancels their unstarted runs.
-- params: names text[]
-- returns: name of those that are gone
-- locks: those jobs and their unstarted runs
SELECT w.name FROM unnest(%(names)s::text[]) w(name) CROSS JOIN LATERAL pgsched.delete_job(w.name) d WHERE d.id IS NOT NULL


-- name: file_queues_set
-- make or change queues.
-- params: rows jsonb (an array of objects with the columns of queues)
-- returns: name
-- locks: those rows
INSERT INTO pgsched.queues (name, concurrency_limit, rate, rate_period, rate_burst, max_depth, on_full, fair, ageing, keep)
SELECT w.name, w.concurrency_limit, w.rate, w.rate_period, w.rate_burst, w.max_depth, w.on_full, w.fair, w.ageing, w.keep
FROM jsonb_populate_recordset(NULL::pgsched.queues, %(rows)s::jsonb) w ORDER BY w.name
ON CONFLICT (name) DO UPDATE SET (concurrency_limit, rate, rate_period, rate_burst, max_depth, on_full, fair, ageing, keep)
    = ROW(excluded.concurrency_limit, excluded.rate, excluded.rate_period, excluded.rate_burst, excluded.max_depth,
          excluded.on_full, excluded.fair, excluded.ageing, excluded.keep)
RETURNING name


-- name: file_limits_set
-- make or change limits of keys.
-- params: rows jsonb (an array of objects with the columns of limits)
-- returns: name; none of those that code declares
-- locks: those rows
INSERT INTO pgsched.limits AS l (name, concurrency, rate, rate_period, rate_burst, ordered, weight)
SELECT w.name, w.concurrency, w.rate, w.rate_period, w.rate_burst, w.ordered, w.weight
FROM jsonb_populate_recordset(NULL::pgsched.limits, %(rows)s::jsonb) w ORDER BY w.name
ON CONFLICT (name) DO UPDATE SET (concurrency, rate, rate_period, rate_burst, ordered, weight)
    = ROW(excluded.concurrency, excluded.rate, excluded.rate_period, excluded.rate_burst, excluded.ordered,
          excluded.weight)
    WHERE l.declared_by IS NULL
RETURNING name


-- name: file_pauses_set
-- begin or change pauses.
-- params: rows jsonb (an array of objects with what, name, reason and resume_at)
-- returns: name
-- locks: those rows
INSERT INTO pgsched.pauses (what, name, reason, resume_at)
SELECT w.what, coalesce(w.name, ''), w.reason, w.resume_at
FROM jsonb_populate_recordset(NULL::pgsched.pauses, %(rows)s::jsonb) w ORDER BY w.what, w.name
ON CONFLICT (what, name) DO UPDATE SET reason = excluded.reason, resume_at = excluded.resume_at
RETURNING name


-- name: file_retention_set
-- set how long everything is kept. Columns that are null stay.
-- params: rows jsonb (an array with one object)
-- returns: name
-- locks: that row
UPDATE pgsched.retention r SET keep = coalesce(w.keep, r.keep), archive = coalesce(w.archive, r.archive),
    keep_minutes = coalesce(w.keep_minutes, r.keep_minutes), keep_hours = coalesce(w.keep_hours, r.keep_hours)
FROM jsonb_populate_recordset(NULL::pgsched.retention, %(rows)s::jsonb) w RETURNING r.name


-- name: file_retention_audit
-- set how long the audit is kept, which an operator may not do.
-- params: rows jsonb (an array with one object)
-- returns: name
-- locks: that row
UPDATE pgsched.retention r SET keep_audit = w.keep_audit
FROM jsonb_populate_recordset(NULL::pgsched.retention, %(rows)s::jsonb) w RETURNING r.name


-- name: file_alerts_set
-- set what is watched where a job does not say it.
-- params: rows jsonb (an array with one object)
-- returns: name
-- locks: that row
UPDATE pgsched.alert_defaults d SET (alert_after_failures, max_lateness, max_duration, expect_every, finish_by, alert_to,
        dead_runs, dead_runs_within)
    = ROW(w.alert_after_failures, w.max_lateness, w.max_duration, w.expect_every, w.finish_by, w.alert_to, w.dead_runs,
          w.dead_runs_within)
FROM jsonb_populate_recordset(NULL::pgsched.alert_defaults, %(rows)s::jsonb) w RETURNING d.name


-- name: file_calendars_set
-- make or change calendars.
-- params: rows jsonb (an array of objects with name and description)
-- returns: name
-- locks: those rows
INSERT INTO pgsched.calendars (name, description)
SELECT w.name, w.description FROM jsonb_populate_recordset(NULL::pgsched.calendars, %(rows)s::jsonb) w ORDER BY w.name
ON CONFLICT (name) DO UPDATE SET description = excluded.description
RETURNING name


-- name: file_calendar_times_remove
-- remove the times of calendars that are not among the given ones.
-- params: names text[] (the calendars), rows jsonb (an array of objects with the columns of calendar_times)
-- returns: (name, gone: how many) of those calendars that had such times
-- locks: those rows, and the calendars
SELECT o.calendar AS name, pgsched.remove_calendar_times(o.calendar, o.ids) AS gone
FROM (
    SELECT t.calendar, array_agg(t.id) AS ids FROM pgsched.calendar_times t
    WHERE t.calendar = ANY (%(names)s::text[]) AND (to_jsonb(t) - 'id') NOT IN (
        SELECT to_jsonb(w) - 'id' FROM jsonb_populate_recordset(NULL::pgsched.calendar_times, %(rows)s::jsonb) w)
    GROUP BY t.calendar
) o


-- name: file_calendar_times_add
-- add those times of calendars that are not there yet.
-- params: names text[] (the calendars), rows jsonb (an array of objects with the columns of calendar_times)
-- returns: id
-- locks: those rows, and the calendars
INSERT INTO pgsched.calendar_times (calendar, from_date, until_date, weekdays, from_time, until_time, reason)
SELECT w.calendar, w.from_date, w.until_date, w.weekdays, w.from_time, w.until_time, w.reason
FROM jsonb_populate_recordset(NULL::pgsched.calendar_times, %(rows)s::jsonb) w
WHERE (to_jsonb(w) - 'id') NOT IN (
    SELECT to_jsonb(t) - 'id' FROM pgsched.calendar_times t WHERE t.calendar = ANY (%(names)s::text[]))
RETURNING id


-- name: file_queues_delete
-- remove the settings of queues.
-- params: names text[]
-- returns: name
-- locks: those rows
DELETE FROM pgsched.queues WHERE name = ANY (%(names)s::text[]) RETURNING name


-- name: file_limits_delete
-- remove limits of keys.
-- params: names text[]
-- returns: name
-- locks: those rows
DELETE FROM pgsched.limits WHERE name = ANY (%(names)s::text[]) RETURNING name


-- name: file_pauses_delete
-- end pauses.
-- params: names text[] (what and name of each: `queue mail`, `all`)
-- returns: name
-- locks: those rows
DELETE FROM pgsched.pauses WHERE btrim(what || ' ' || name) = ANY (%(names)s::text[]) RETURNING name


-- name: file_calendars_delete
-- delete calendars with their times.
-- params: names text[]
-- returns: (name, gone: the same, or null where the caller has no such calendar)
-- locks: those rows
SELECT w.name, pgsched.delete_calendar(w.name) AS gone FROM unnest(%(names)s::text[]) w(name)
