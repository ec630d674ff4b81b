-- calendar_list: the excluded dates of a job.
-- params: name text
-- returns: (from_date, until_date, reason) by date; both dates are excluded
-- locks: none
SELECT c.from_date, c.until_date, c.reason FROM pgsched.job_calendars c JOIN pgsched.jobs j ON j.id = c.job_id
WHERE j.name = %(name)s ORDER BY c.from_date
