-- Calendars that jobs share: how they are read and changed, and what a change of them asks of the leader.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: calendars_times
-- return the times of calendars, as the program takes them (pgsched/core/schedule/calendar.py).
-- params: names text[], versions text[]: parallel to them, the versions that the caller has (null: none)
-- returns: (name, version, times: null if the caller has this version) of the calendars that exist
-- locks: none
SELECT c.name, c.version::text AS version, CASE WHEN c.version IS DISTINCT FROM s.version::uuid THEN coalesce((
        SELECT json_agg(json_build_array(t.calendar, t.from_date, t.until_date, t.weekdays, t.from_time, t.until_time, t.reason)
                        ORDER BY t.id)
        FROM pgsched.calendar_times t WHERE t.calendar = c.name), '[]') END AS times
FROM unnest(%(names)s::text[], %(versions)s::text[]) AS s(name, version) JOIN pgsched.calendars c USING (name)


-- name: calendars_list
-- return calendars by name.
-- params: name text (null: all), n int
-- returns: (name, description, owner, created_at, times: how many, first_date, last_date: of its dates, jobs: how many
--          use it, of those that the caller may see)
-- locks: none
SELECT c.name, c.description, c.owner, c.created_at, t.times, t.first_date, t.last_date,
    (SELECT count(*) FROM pgsched.jobs j WHERE j.calendar = c.name) AS jobs
FROM pgsched.calendars c CROSS JOIN LATERAL (
    SELECT count(*) AS times, min(o.from_date) AS first_date, max(o.until_date) AS last_date
    FROM pgsched.calendar_times o WHERE o.calendar = c.name) t
WHERE %(name)s::text IS NULL OR c.name = %(name)s ORDER BY c.name LIMIT %(n)s


-- name: calendars_rows
-- return the times of a calendar: whole days by date, then the others.
-- params: name text
-- returns: (id, from_date, until_date, weekdays, from_time, until_time: as texts, reason)
-- locks: none
SELECT id, from_date, until_date, weekdays, from_time::text, until_time::text, reason FROM pgsched.calendar_times
WHERE calendar = %(name)s ORDER BY from_date, until_date, id


-- name: calendars_users
-- return jobs that use a calendar.
-- params: name text, n int
-- returns: (name, on_excluded) by name
-- locks: none
SELECT name, on_excluded FROM pgsched.jobs WHERE calendar = %(name)s ORDER BY name LIMIT %(n)s


-- name: calendars_make
-- make a calendar, unless there is one of that name.
-- params: name text, description text
-- returns: name, or no row: it exists
-- locks: none except the new row
INSERT INTO pgsched.calendars (name, description) VALUES (%(name)s, %(description)s)
ON CONFLICT (name) DO NOTHING RETURNING name


-- name: calendars_describe
-- change the description of a calendar.
-- params: name text, description text
-- returns: name, or no row: the caller has no such calendar
-- locks: that calendar
UPDATE pgsched.calendars SET description = %(description)s WHERE name = %(name)s RETURNING name


-- name: calendars_add
-- add times to a calendar, those that it has already left out.
-- params: name text; parallel arrays from_dates date[], until_dates date[], weekdays text[] (each an array literal),
--         from_times time[], until_times time[], reasons text[]
-- returns: how many were added: n
-- locks: the calendar, until the transaction ends
WITH added AS (
    INSERT INTO pgsched.calendar_times (calendar, from_date, until_date, weekdays, from_time, until_time, reason)
    SELECT %(name)s, s.from_date, s.until_date, s.weekdays::integer[], s.from_time, s.until_time, s.reason
    FROM unnest(%(from_dates)s::date[], %(until_dates)s::date[], %(weekdays)s::text[], %(from_times)s::time[],
                %(until_times)s::time[], %(reasons)s::text[])
        WITH ORDINALITY AS s(from_date, until_date, weekdays, from_time, until_time, reason, n)
    WHERE NOT EXISTS (
        SELECT FROM pgsched.calendar_times t
        WHERE t.calendar = %(name)s AND (t.from_date, t.until_date, t.weekdays, t.from_time, t.until_time, t.reason)
            IS NOT DISTINCT FROM (s.from_date, s.until_date, s.weekdays::integer[], s.from_time, s.until_time, s.reason))
    ORDER BY s.n RETURNING id
)
SELECT count(*) AS n FROM added


-- name: calendars_remove
-- remove times of a calendar.
-- params: name text, ids bigint[]
-- returns: n: how many; null: the caller has no such calendar
-- locks: those times, and the calendar, until the transaction ends
SELECT pgsched.remove_calendar_times(%(name)s, %(ids)s::bigint[]) AS n


-- name: calendars_delete
-- delete a calendar with its times.
-- params: name text
-- returns: name; null: the caller has no such calendar
-- locks: that calendar
SELECT pgsched.delete_calendar(%(name)s) AS name


-- name: calendars_changed
-- return the calendars whose jobs are to be planned again.
-- params: n int
-- returns: (name, version)
-- locks: none
SELECT name, version::text AS version FROM pgsched.calendars WHERE replan ORDER BY name LIMIT %(n)s


-- name: calendars_replan
-- let the next jobs of a calendar be planned again whose next slot may lie elsewhere by now: those whose slots it shifts,
-- and those of @after, which it puts off.
-- params: name text, after bigint (id), n int, ids bigint[] as text (these jobs only; null: all behind `after`)
-- returns: (id, again: it will be planned again; false: another transaction has locked it) in the order of id
-- locks: those jobs, skipping locked ones
WITH page AS MATERIALIZED (
    SELECT j.id FROM pgsched.jobs j
    WHERE j.calendar = %(name)s AND j.id > %(after)s AND (%(ids)s::text IS NULL OR j.id = ANY (%(ids)s::text::bigint[]))
        AND j.next_run_at > clock_timestamp()
        AND (j.on_excluded <> 'skip' OR j.shifts IS NOT NULL OR j.schedule ~* '@after')
    ORDER BY j.id LIMIT %(n)s
), free AS MATERIALIZED (
    SELECT j.id FROM pgsched.jobs j WHERE j.id IN (SELECT id FROM page) FOR NO KEY UPDATE OF j SKIP LOCKED
), planned AS (
    UPDATE pgsched.jobs j SET next_run_at = clock_timestamp() FROM free WHERE j.id = free.id RETURNING j.id
)
SELECT p.id, planned.id IS NOT NULL AS again FROM page p LEFT JOIN planned ON planned.id = p.id ORDER BY p.id


-- name: calendars_replanned
-- note that the jobs of a calendar are planned again, unless its times have changed meanwhile.
-- params: name text, version text (as it was read)
-- returns: nothing
-- locks: that calendar, unless it is locked
UPDATE pgsched.calendars c SET replan = false WHERE c.name = (
    SELECT o.name FROM pgsched.calendars o WHERE o.name = %(name)s AND o.version = %(version)s::uuid
    FOR NO KEY UPDATE SKIP LOCKED)
