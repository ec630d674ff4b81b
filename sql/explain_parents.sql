-- explain_parents: what a run that is held back for others still waits for: runs, or jobs whose slot is yet to be decided.
-- params: id bigint
-- returns: (id: of the run, or null; state; job: its name, or that of the job that is waited for)
-- locks: none
SELECT p.id, p.state, j.name AS job FROM pgsched.dependencies d JOIN pgsched.runs p ON p.id = d.parent_id
LEFT JOIN pgsched.jobs j ON j.id = p.job_id
WHERE d.run_id = %(id)s AND d.state = 'open'
UNION ALL
SELECT NULL, NULL, coalesce(j.name, 'job ' || a.job_id)
FROM pgsched.runs r CROSS JOIN LATERAL jsonb_array_elements_text(r.options -> 'after_jobs') AS a(job_id)
LEFT JOIN pgsched.jobs j ON j.id = a.job_id::bigint
WHERE r.id = %(id)s AND r.available_at = '8998-01-01 00:00Z'
  AND NOT EXISTS (SELECT FROM pgsched.runs o WHERE o.job_id = j.id AND o.scheduled_at = r.scheduled_at)
ORDER BY 1 NULLS LAST, 3 LIMIT 100
