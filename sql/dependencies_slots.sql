-- dependencies_slots: slots that wait for the slots of other jobs (jobs.after_jobs), with the runs that they wait for, as
-- far as there are any. A run that stands for a stretch of slots stands for each of them.
-- params: after bigint (of the slots that wait, those with a greater id), n int (look at so many of them)
-- returns: (run_id, parent_ids bigint[], missing bigint: a job that has no such slot and will not have it, or is gone;
--          undecided bigint: how many of the jobs have yet to decide it)
-- locks: row locks on the waiting slots, skipping locked ones
WITH held AS MATERIALIZED (
    SELECT id, scheduled_at AS slot, options FROM pgsched.runs
    WHERE phase = 0 AND ready_at IS NULL AND available_at = '8998-01-01 00:00Z' AND id > %(after)s
    ORDER BY available_at, id LIMIT %(n)s FOR NO KEY UPDATE SKIP LOCKED
), wanted AS MATERIALIZED (
    SELECT h.id, h.slot, a.job_id::bigint AS job_id, coalesce(
        (SELECT r.id FROM pgsched.runs r WHERE r.job_id = a.job_id::bigint AND r.scheduled_at = h.slot),
        (SELECT r.id FROM (
            (SELECT * FROM pgsched.runs b WHERE b.job_id = a.job_id::bigint AND b.scheduled_at < h.slot
             ORDER BY b.scheduled_at DESC LIMIT 1)
            UNION ALL
            (SELECT * FROM pgsched.runs b WHERE b.job_id = a.job_id::bigint AND b.scheduled_at > h.slot
             ORDER BY b.scheduled_at LIMIT 1)) r
         WHERE h.slot BETWEEN r.covers_from AND r.covers_until LIMIT 1)) AS parent_id
    FROM held h CROSS JOIN LATERAL jsonb_array_elements_text(h.options -> 'after_jobs') AS a(job_id)
), judged AS (
    -- a next_run_at that has passed says only that the job is to be planned
    SELECT w.*, w.parent_id IS NULL AND (j.id IS NULL OR j.decided_until >= w.slot
        OR j.next_run_at > greatest(w.slot, clock_timestamp())
        OR j.next_run_at IS NULL AND j.error IS NULL AND NOT j.paused) AS missing
    FROM wanted w LEFT JOIN pgsched.jobs j ON j.id = w.job_id
)
SELECT id, array_agg(parent_id) FILTER (WHERE parent_id IS NOT NULL), min(job_id) FILTER (WHERE missing),
    count(*) FILTER (WHERE parent_id IS NULL AND NOT missing)
FROM judged GROUP BY id
