-- calendar_remove: allow dates of a job again; of a stretch that reaches beyond them, the rest stays excluded.
-- params: name text, from_date date, until_date date
-- returns: (from_date, until_date, reason) of the stretches that were cut or removed, as they were
-- locks: those rows, and the job's where it is planned anew
WITH gone AS (
    DELETE FROM pgsched.job_calendars c USING pgsched.jobs j
    WHERE j.name = %(name)s AND c.job_id = j.id
      AND c.from_date <= %(until_date)s::date AND c.until_date >= %(from_date)s::date
    RETURNING c.job_id, c.from_date, c.until_date, c.reason
), rest AS (
    INSERT INTO pgsched.job_calendars (job_id, from_date, until_date, reason)
    SELECT job_id, from_date, %(from_date)s::date - 1, reason FROM gone WHERE from_date < %(from_date)s::date
    UNION ALL
    SELECT job_id, %(until_date)s::date + 1, until_date, reason FROM gone WHERE until_date > %(until_date)s::date
    ON CONFLICT (job_id, from_date) DO UPDATE
    SET until_date = greatest(job_calendars.until_date, excluded.until_date)
)
SELECT from_date, until_date, reason FROM gone ORDER BY from_date
