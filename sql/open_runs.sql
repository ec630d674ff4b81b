-- open_runs: how many runs of some jobs have not ended.
-- params: names text[]
-- returns: n bigint
-- locks: none
SELECT count(*) AS n FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id
WHERE r.phase < 3 AND j.name = ANY (%(names)s::text[])
