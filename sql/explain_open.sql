-- explain_open: the open runs of a job that are older than one of them, or not waiting themselves: it waits for these.
-- params: id bigint
-- returns: (id, state, scheduled_at)
-- locks: none
SELECT o.id, o.state, o.scheduled_at FROM pgsched.runs w JOIN pgsched.runs o ON o.job_id = w.job_id AND o.phase < 3
WHERE w.id = %(id)s AND o.id <> w.id AND o.origin <> 'backfill'
  AND (o.state <> 'waiting' OR (o.scheduled_at, o.id) < (w.scheduled_at, w.id))
ORDER BY o.scheduled_at, o.id LIMIT 100
