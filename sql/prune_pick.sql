-- prune_pick: of the next ended runs, lock those that nothing keeps any longer: neither the settings of their job, queue
-- or everything, nor that theirs is their job's newest slot, by which its page, @after and alerts know it.
-- params: keep_s float8 (those go that are kept for at most so long), after timestamptz (-infinity as text), until
--         timestamptz, n int (so many are read)
-- returns: (ids bigint[], read bigint, last_at timestamptz: the end of the last that was read)
-- locks: FOR UPDATE on those runs, skipping locked ones
WITH read AS MATERIALIZED (
    SELECT id, job_id, scheduled_at, queue, state, finished_at FROM pgsched.runs
    WHERE phase >= 3 AND finished_at >= %(after)s::text::timestamptz AND finished_at <= %(until)s
    ORDER BY finished_at LIMIT %(n)s
), old AS MATERIALIZED (
    SELECT r.id FROM read r CROSS JOIN pgsched.retention g
    LEFT JOIN pgsched.jobs j ON j.id = r.job_id
    LEFT JOIN pgsched.queues q ON q.name = r.queue AND q.keep IS NOT NULL
    WHERE pgsched.keep_of(r.state, j.keep, q.keep, g.keep) <= make_interval(secs => %(keep_s)s)
      AND (j.id IS NULL OR r.scheduled_at < (
          SELECT s.scheduled_at FROM pgsched.runs s WHERE s.job_id = r.job_id ORDER BY s.scheduled_at DESC LIMIT 1))
), locked AS MATERIALIZED (
    SELECT r.id FROM pgsched.runs r WHERE r.id = ANY (ARRAY(SELECT id FROM old)) AND r.phase >= 3
    FOR UPDATE SKIP LOCKED
)
SELECT ARRAY(SELECT id FROM locked) AS ids, (SELECT count(*) FROM read) AS read,
    (SELECT max(finished_at) FROM read) AS last_at
