-- calendar_add: exclude dates of a job; a stretch that begins at the same date is replaced.
-- params: name text, from_date date, until_date date, reason text
-- returns: (from_date, until_date, reason), or no row: no such job
-- locks: that row, and the job's where it is planned anew
INSERT INTO pgsched.job_calendars AS c (job_id, from_date, until_date, reason)
SELECT id, %(from_date)s::date, %(until_date)s::date, %(reason)s FROM pgsched.jobs WHERE name = %(name)s
ON CONFLICT (job_id, from_date) DO UPDATE SET until_date = excluded.until_date, reason = excluded.reason
RETURNING c.from_date, c.until_date, c.reason
