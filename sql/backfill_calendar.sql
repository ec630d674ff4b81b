-- backfill_calendar: the dates that a job leaves out.
-- params: job_id bigint
-- returns: (from_date, until_date, reason); both dates are left out
-- locks: none
SELECT from_date, until_date, reason FROM pgsched.job_calendars WHERE job_id = %(job_id)s ORDER BY from_date
