-- dependencies_no_slot: slots that wait for what will never be are skipped.
-- params: parallel arrays ids bigint[], job_ids bigint[]: the job that has no such slot (0: the jobs wait in a circle)
-- returns: nothing; the number of rows says how many
-- locks: those runs
UPDATE pgsched.runs r SET state = 'skipped', finished_at = clock_timestamp(), available_at = clock_timestamp(),
    reason = CASE WHEN g.job_id = 0 THEN 'after_jobs: its jobs wait for each other'
        WHEN j.id IS NULL THEN format('after_jobs: job %%s is gone', g.job_id)
        ELSE format('after_jobs: job "%%s" has no such slot', j.name) END
FROM unnest(%(ids)s::text::bigint[], %(job_ids)s::text::bigint[]) AS g(id, job_id)
LEFT JOIN pgsched.jobs j ON j.id = g.job_id
WHERE r.id = g.id AND r.phase = 0 AND r.available_at = '8998-01-01 00:00Z'
