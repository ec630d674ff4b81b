-- prune_pick: of the next ended runs, lock those that nothing keeps any longer: neither the settings of their job, queue
-- or everything, nor that theirs is their job's newest slot, by which its page, @after and alerts know it. A row that
-- stands for a stretch of slots is as old as the end of the stretch: it may have grown since (tick_extend).
-- params: keep_s float8 (those go that are kept for at most so long), after timestamptz (-infinity as text), until
--         timestamptz, n int (so many are read), durable boolean (false: the commit need not wait for the disk: rows that
--         come back with a server that fell over go once more)
-- returns: (ids text: an array of bigint; locked bigint: how many those are; read bigint, last_at timestamptz: the end
--          of the last that was read)
-- locks: FOR UPDATE on those runs, skipping locked ones
WITH read AS MATERIALIZED (
    SELECT ctid AS place, job_id, scheduled_at, queue, state, finished_at FROM pgsched.runs
    WHERE phase >= 3 AND finished_at >= %(after)s::text::timestamptz AND finished_at <= %(until)s
    ORDER BY finished_at LIMIT %(n)s
), everything AS MATERIALIZED (
    SELECT g.keep, ARRAY(SELECT s FROM unnest('{succeeded,dead,cancelled,skipped,missed}'::text[]) s
                         WHERE pgsched.keep_of(s, NULL, NULL, g.keep) <= make_interval(secs => %(keep_s)s)) AS states,
        ARRAY(SELECT name FROM pgsched.queues WHERE keep IS NOT NULL) AS queues
    FROM pgsched.retention g
    WHERE %(durable)s OR set_config('synchronous_commit', 'off', true) IS NOT NULL
), jobs AS MATERIALIZED (
    SELECT j.id, j.keep, (SELECT s.scheduled_at FROM pgsched.runs s WHERE s.job_id = j.id
                          ORDER BY s.scheduled_at DESC LIMIT 1) AS newest
    FROM pgsched.jobs j WHERE j.id = ANY (ARRAY(SELECT DISTINCT r.job_id FROM read r WHERE r.job_id IS NOT NULL))
), locked AS MATERIALIZED (
    -- by place: who has written the row since is followed, and what it says is asked again
    SELECT r.id FROM pgsched.runs r WHERE r.phase >= 3 AND r.finished_at <= %(until)s
      AND (r.covers_until <= %(until)s) IS NOT FALSE AND r.ctid = ANY (ARRAY(
        SELECT o.place FROM read o CROSS JOIN everything e LEFT JOIN jobs j ON j.id = o.job_id
        WHERE (j.id IS NULL OR o.scheduled_at < j.newest)
          -- quicker for nearly all: what holds for everything
          AND CASE WHEN j.keep IS NULL AND o.queue <> ALL (e.queues) THEN o.state = ANY (e.states)
              ELSE pgsched.keep_of(o.state, j.keep, (SELECT q.keep FROM pgsched.queues q WHERE q.name = o.queue), e.keep)
                   <= make_interval(secs => %(keep_s)s) END))
    FOR UPDATE SKIP LOCKED
)
SELECT l.ids::text AS ids, cardinality(l.ids)::bigint AS locked, r.read, r.last_at
FROM (SELECT ARRAY(SELECT id FROM locked) AS ids) l, (SELECT count(*) AS read, max(finished_at) AS last_at FROM read) r
