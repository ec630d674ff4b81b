-- prune_count: how many runs the settings keep no longer, by queue and outcome. It reads all ended runs that old.
-- params: until timestamptz (only what ended by then)
-- returns: (queue, state, runs, oldest_at)
-- locks: none
SELECT r.queue, r.state, count(*) AS runs, min(r.finished_at) AS oldest_at
FROM pgsched.runs r CROSS JOIN pgsched.retention g
LEFT JOIN pgsched.jobs j ON j.id = r.job_id
LEFT JOIN pgsched.queues q ON q.name = r.queue AND q.keep IS NOT NULL
WHERE r.phase >= 3 AND r.finished_at <= %(until)s
  AND r.finished_at < clock_timestamp() - pgsched.keep_of(r.state, j.keep, q.keep, g.keep)
  AND (j.id IS NULL OR r.scheduled_at < (
      SELECT s.scheduled_at FROM pgsched.runs s WHERE s.job_id = r.job_id ORDER BY s.scheduled_at DESC LIMIT 1))
  AND NOT EXISTS (SELECT FROM pgsched.dependencies d JOIN pgsched.runs c ON c.id = d.run_id
                  WHERE d.parent_id = r.id AND c.phase < 3 OFFSET 0)
GROUP BY r.queue, r.state ORDER BY r.queue, r.state
