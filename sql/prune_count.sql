-- prune_count: how many runs the settings keep no longer, by queue and outcome. It reads all ended runs that old.
-- params: until timestamptz (only what ended by then)
-- returns: (queue, state, runs, oldest_at)
-- locks: none
WITH held AS MATERIALIZED (
    -- as in prune_delete
    SELECT a.job_id::bigint AS job_id, w.scheduled_at AS slot
    FROM pgsched.runs w CROSS JOIN LATERAL jsonb_array_elements_text(w.options -> 'after_jobs') AS a(job_id)
    WHERE w.phase = 0 AND w.ready_at IS NULL AND w.available_at = '8998-01-01 00:00Z'
)
SELECT r.queue, r.state, count(*) AS runs, min(r.finished_at) AS oldest_at
FROM pgsched.runs r CROSS JOIN pgsched.retention g
LEFT JOIN pgsched.jobs j ON j.id = r.job_id
LEFT JOIN pgsched.queues q ON q.name = r.queue AND q.keep IS NOT NULL
WHERE r.phase >= 3 AND r.finished_at <= %(until)s
  AND greatest(r.finished_at, r.covers_until) < clock_timestamp() - pgsched.keep_of(r.state, j.keep, q.keep, g.keep)
  AND (j.id IS NULL OR r.scheduled_at < (
      SELECT s.scheduled_at FROM pgsched.runs s WHERE s.job_id = r.job_id ORDER BY s.scheduled_at DESC LIMIT 1))
  AND NOT EXISTS (SELECT FROM pgsched.dependencies d JOIN pgsched.runs c ON c.id = d.run_id
                  WHERE d.parent_id = r.id AND c.phase < 3 OFFSET 0)
  AND (r.job_id IS NULL OR ((r.job_id, r.scheduled_at) IN (SELECT h.job_id, h.slot FROM held h)) IS NOT TRUE)
  AND (r.covers_from IS NULL OR (SELECT true FROM held h WHERE h.job_id = r.job_id
                                 AND h.slot BETWEEN r.covers_from AND r.covers_until LIMIT 1) IS NULL)
GROUP BY r.queue, r.state ORDER BY r.queue, r.state
