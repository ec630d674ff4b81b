-- Dates on which a job does not run.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: calendar_add
-- exclude dates of a job. A range that begins at the same date is replaced.
-- params: name text, from_date date, until_date date, reason text
-- returns: (from_date, until_date, reason), or no row: no such job
-- locks: that row, and the job's row if it is planned again
INSERT INTO pgsched.job_calendars AS c (job_id, from_date, until_date, reason)
SELECT id, %(from_date)s::date, %(until_date)s::date, %(reason)s FROM pgsched.jobs WHERE name = %(name)s
ON CONFLICT (job_id, from_date) DO UPDATE SET until_date = excluded.until_date, reason = excluded.reason
RETURNING c.from_date, c.until_date, c.reason


-- name: calendar_list
-- return the excluded dates of a job.
-- params: name text
-- returns: (from_date, until_date, reason) by date; both dates are excluded
-- locks: none
SELECT c.from_date, c.until_date, c.reason FROM pgsched.job_calendars c JOIN pgsched.jobs j ON j.id = c.job_id
WHERE j.name = %(name)s ORDER BY c.from_date


-- name: calendar_remove
-- allow dates of a job again. If a range reaches beyond them, its rest stays excluded.
-- params: name text, from_date date, until_date date
-- returns: (from_date, until_date, reason) of the ranges that were cut or removed, as they were before
-- locks: those rows, and the job's row if it is planned again
SELECT from_date, until_date, reason FROM pgsched.include_dates(%(name)s, %(from_date)s, %(until_date)s)
