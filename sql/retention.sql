-- How long ended runs are kept, and their deletion.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: prune_audit
-- delete changes of people that are older than the settings keep.
-- params: n int
-- returns: gone bigint
-- locks: those rows
SELECT pgsched.prune_audit(%(n)s) AS gone


-- name: prune_backfills
-- delete backfills that ended before the horizon, as their runs are deleted. The runs keep the backfill's id.
-- params: keep_s float8, n int
-- returns: nothing
-- locks: those rows, skipping locked ones
WITH old AS MATERIALIZED (
    SELECT b.id FROM pgsched.backfills b
    WHERE b.finished_at < clock_timestamp() - make_interval(secs => %(keep_s)s)
      AND (SELECT true FROM pgsched.runs r WHERE r.backfill_id = b.id AND r.phase < 3 /* open */ LIMIT 1) IS NULL
    ORDER BY b.id LIMIT %(n)s FOR UPDATE SKIP LOCKED
)
DELETE FROM pgsched.backfills b USING old WHERE b.id = old.id


-- name: prune_count
-- count the runs that the settings keep no longer, by queue and outcome. All ended runs of that age are read.
-- params: until timestamptz (only runs that ended by then)
-- returns: (queue, state, runs, oldest_at)
-- locks: none
WITH held AS MATERIALIZED (
    -- as in prune_delete
    SELECT a.job_id, w.scheduled_at AS slot
    FROM pgsched.runs w CROSS JOIN LATERAL pgsched.after_jobs_of(w.options) AS a(job_id)
    WHERE w.phase = 0 /* waiting */ AND w.ready_at IS NULL AND w.available_at = '8998-01-01 00:00Z'
)
SELECT r.queue, r.state, count(*) AS runs, min(r.finished_at) AS oldest_at
FROM pgsched.runs r CROSS JOIN pgsched.retention g
LEFT JOIN pgsched.jobs j ON j.id = r.job_id
LEFT JOIN pgsched.queues q ON q.name = r.queue AND q.keep IS NOT NULL
WHERE r.phase >= 3 /* ended */ AND r.finished_at <= %(until)s
  AND greatest(r.finished_at, r.covers_until) < clock_timestamp() - coalesce(r.keep, pgsched.keep_of(r.state, j.keep, q.keep, g.keep))
  AND (j.id IS NULL OR r.scheduled_at < (
      SELECT s.scheduled_at FROM pgsched.runs s WHERE s.job_id = r.job_id ORDER BY s.scheduled_at DESC LIMIT 1))
  AND NOT EXISTS (SELECT FROM pgsched.dependencies d JOIN pgsched.runs c ON c.id = d.run_id
                  WHERE d.parent_id = r.id AND c.phase < 3 /* open */ OFFSET 0)
  AND (r.job_id IS NULL OR ((r.job_id, r.scheduled_at) IN (SELECT h.job_id, h.slot FROM held h)) IS NOT TRUE)
  AND (r.covers_from IS NULL OR (SELECT true FROM held h WHERE h.job_id = r.job_id
                                 AND h.slot BETWEEN r.covers_from AND r.covers_until LIMIT 1) IS NULL)
GROUP BY r.queue, r.state ORDER BY r.queue, r.state


-- name: prune_delete
-- delete locked runs with their attempts, output and edges. The outcome of a run stays with the idempotency keys that
-- it was made or found by, if they belong to its owner, until they expire. A run stays while a run that waited for it
-- is not finished, because that run may ask for its result. It also stays while a slot waits that will have it as a
-- parent (dependencies_slots). This is a statement of its own, after the lock: no transaction can add an edge to the
-- runs any more.
-- params: ids text (an array of bigint), archive boolean (copy into pgsched.archived_runs), tell boolean (return the
--         rows)
-- returns: (gone bigint: how many were deleted; run null); and if `tell` (gone null; run: the text of a JSON object,
--          the whole row with its attempts and output) for each of them
-- locks: the deleted rows, and the keys that stand for them
WITH wanted AS MATERIALIZED (
    SELECT d.parent_id AS id FROM pgsched.dependencies d JOIN pgsched.runs c ON c.id = d.run_id
    WHERE d.parent_id = ANY (%(ids)s::text::bigint[]) AND c.phase < 3 /* open */
), held AS MATERIALIZED (
    SELECT a.job_id, w.scheduled_at AS slot
    FROM pgsched.runs w CROSS JOIN LATERAL pgsched.after_jobs_of(w.options) AS a(job_id)
    WHERE w.phase = 0 /* waiting */ AND w.ready_at IS NULL AND w.available_at = '8998-01-01 00:00Z'
), gone AS (
    DELETE FROM pgsched.runs r WHERE r.id = ANY (%(ids)s::text::bigint[]) AND r.id NOT IN (SELECT w.id FROM wanted w)
      AND (r.job_id IS NULL OR ((r.job_id, r.scheduled_at) IN (SELECT h.job_id, h.slot FROM held h)) IS NOT TRUE)
      AND (r.covers_from IS NULL OR (SELECT true FROM held h WHERE h.job_id = r.job_id
                                     AND h.slot BETWEEN r.covers_from AND r.covers_until LIMIT 1) IS NULL)
    -- no more than is asked for: each column of each row is copied
    RETURNING r.id, r.idempotency_key,
        CASE WHEN %(archive)s OR %(tell)s THEN to_jsonb(r) - '{phase,token,lease_until,begun,suspect}'::text[] || jsonb_build_object(
            'attempts', (SELECT coalesce(jsonb_agg(to_jsonb(a) - '{run_id,token}'::text[] ORDER BY a.finished_at), '[]')
                         FROM pgsched.attempts a WHERE a.run_id = r.id),
            'output', (SELECT CASE WHEN sum(octet_length(l.chunk)) > 50000000 THEN to_jsonb('more than 50 MB'::text)
                              ELSE coalesce(jsonb_agg(to_jsonb(l) - '{run_id,token}'::text[] ORDER BY l.attempt, l.seq), '[]')
                              END
                       FROM pgsched.run_logs l WHERE l.run_id = r.id)) END AS run
), attempts_gone AS (
    -- by their keys, and not by a join that may read all of the table; so everywhere below
    DELETE FROM pgsched.attempts WHERE run_id = ANY (ARRAY(SELECT id FROM gone))
), logs_gone AS (
    DELETE FROM pgsched.run_logs WHERE run_id = ANY (ARRAY(SELECT id FROM gone))
), edges_gone AS (
    DELETE FROM pgsched.dependencies WHERE run_id = ANY (ARRAY(SELECT id FROM gone))
), keys AS MATERIALIZED (
    SELECT g.idempotency_key AS key, g.id AS run_id FROM gone g WHERE g.idempotency_key IS NOT NULL
    UNION ALL
    SELECT k.key, k.run_id FROM pgsched.kept_keys k WHERE k.met AND k.run_id = ANY (ARRAY(SELECT g.id FROM gone g))
), told AS (
    UPDATE pgsched.kept_keys k
    SET state = r.state, result = r.result, error = r.error, finished_at = r.finished_at
    -- the runs are there still, for this statement
    FROM keys JOIN pgsched.runs r ON r.id = keys.run_id AND r.id = ANY (ARRAY(SELECT o.run_id FROM keys o))
    WHERE k.scope = 'idempotency' AND k.key = keys.key AND k.run_id = keys.run_id
        AND k.key = ANY (ARRAY(SELECT o.key FROM keys o))
        AND (k.owner IS NULL OR k.owner = r.owner)
), archived AS (
    INSERT INTO pgsched.archived_runs (run_id, job_id, job, queue, task, state, scheduled_at, finished_at, run,
        outside_name)
    SELECT g.id, a.job_id, j.name, a.queue, a.task, a.state, a.scheduled_at, a.finished_at, g.run,
        pgsched.outside_name(g.id, a.created_at, a.reruns)
    FROM gone g CROSS JOIN LATERAL jsonb_to_record(g.run) AS a(job_id bigint, queue text, task text, state text,
        scheduled_at timestamptz, finished_at timestamptz, created_at timestamptz, reruns integer)
        LEFT JOIN pgsched.jobs j ON j.id = a.job_id WHERE %(archive)s
    ON CONFLICT DO NOTHING  -- it is there already, from before the server fell back
)
SELECT count(*) AS gone, NULL AS run FROM gone UNION ALL SELECT NULL, run::text FROM gone WHERE %(tell)s


-- name: prune_jobs
-- delete one-off jobs with delete_after_run once their run has succeeded.
-- params: n int
-- returns: nothing
-- locks: those rows, skipping locked ones
WITH done AS MATERIALIZED (
    SELECT j.id FROM pgsched.jobs j
    WHERE j.delete_after_run AND j.schedule IS NULL AND j.next_run_at IS NULL AND (
        SELECT r.state = 'succeeded' FROM pgsched.runs r WHERE r.job_id = j.id AND r.scheduled_at = j.run_at)
    LIMIT %(n)s FOR UPDATE SKIP LOCKED
)
DELETE FROM pgsched.jobs j USING done WHERE j.id = done.id


-- name: prune_keys
-- delete a small batch of expired keys that are stored beside runs. A key of the scope while_queued that a run still has
-- is kept for another day.
-- params: n int
-- returns: deleted bigint
-- locks: those rows, skipping locked ones
WITH old AS MATERIALIZED (
    -- a clock asked in a query of its own bounds the scan; asked for each row it would only filter it
    SELECT ctid AS place, scope = 'while_queued' AND coalesce((
        SELECT pgsched.is_unclaimed(r.state, r.attempt, r.token, r.suspect, r.reruns) FROM pgsched.runs r
        WHERE r.id = k.run_id), false) AS held
    FROM pgsched.kept_keys k WHERE expires_at < (SELECT clock_timestamp())
    ORDER BY expires_at LIMIT %(n)s FOR UPDATE SKIP LOCKED
), renewed AS (
    UPDATE pgsched.kept_keys SET expires_at = clock_timestamp() + interval '1 day'
    WHERE ctid = ANY (ARRAY(SELECT place FROM old WHERE held))
), gone AS (
    -- by place: a join would read all keys once the planner takes `n` for unknown
    DELETE FROM pgsched.kept_keys WHERE ctid = ANY (ARRAY(SELECT place FROM old WHERE NOT held)) RETURNING 1
)
SELECT count(*) AS deleted FROM gone


-- name: prune_pick
-- lock those of the next ended runs that nothing keeps any longer. The settings of their job, queue or everything keep
-- a run (prune_pick_own: those that say it themselves). So does being its job's newest slot, by which the job's page,
-- @after and alerts know it. A row that stands for
-- a stretch of slots is as old as the end of the stretch, because it may have grown (tick_extend).
-- params: keep_s float8 (only runs that are kept for at most this long), after timestamptz (-infinity as text) and
--         after_id bigint (after this run among those that ended at that time), until timestamptz, n int (how many are
--         read), durable boolean (false: the commit need not wait for the disk, because runs that come back after a
--         crash of the server are deleted once more), aside bigint[] as text (runs to leave out)
-- returns: (ids text: an array of bigint; locked bigint: how many these are; read bigint, last_at timestamptz, last_id
--          bigint: the end and the id of the last run that was read)
-- locks: FOR UPDATE on those runs, skipping locked ones
WITH read AS MATERIALIZED (
    SELECT ctid AS place, id, job_id, scheduled_at, queue, state, finished_at, keep FROM pgsched.runs
    WHERE phase >= 3 /* ended */ AND finished_at >= %(after)s::text::timestamptz AND finished_at <= %(until)s
      AND (finished_at > %(after)s::text::timestamptz OR id > %(after_id)s)
    ORDER BY finished_at, id LIMIT %(n)s
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
    -- by ctid: PostgreSQL follows a row that was updated since, and checks the conditions again
    SELECT r.id FROM pgsched.runs r WHERE r.phase >= 3 /* ended */ AND r.finished_at <= %(until)s
      AND (r.covers_until <= %(until)s) IS NOT FALSE AND r.ctid = ANY (ARRAY(
        SELECT o.place FROM read o CROSS JOIN everything e LEFT JOIN jobs j ON j.id = o.job_id
        WHERE (j.id IS NULL OR o.scheduled_at < j.newest) AND o.id <> ALL (%(aside)s::text::bigint[]) AND o.keep IS NULL
          -- quicker for nearly all: what holds for everything
          AND CASE WHEN j.keep IS NULL AND o.queue <> ALL (e.queues) THEN o.state = ANY (e.states)
              ELSE pgsched.keep_of(o.state, j.keep, (SELECT q.keep FROM pgsched.queues q WHERE q.name = o.queue), e.keep)
                   <= make_interval(secs => %(keep_s)s) END))
    FOR UPDATE SKIP LOCKED
)
SELECT l.ids::text AS ids, cardinality(l.ids)::bigint AS locked, r.read, r.last_at,
    (SELECT max(o.id) FROM read o WHERE o.finished_at = r.last_at) AS last_id
FROM (SELECT ARRAY(SELECT id FROM locked) AS ids) l, (SELECT count(*) AS read, max(finished_at) AS last_at FROM read) r


-- name: prune_pick_own
-- lock those of the next ended runs that say themselves how long they are kept, and that have been kept for so long. As
-- with prune_pick its job's newest slot stays, and a row that stands for a stretch of slots is as old as its end.
-- params: after timestamptz (-infinity as text) and after_id bigint (after this run among those whose time was over at
--         that instant), until timestamptz (only runs that ended, and whose time was over, by then), n int (how many are
--         read), durable boolean (as prune_pick), aside bigint[] as text (runs to leave out)
-- returns: (ids text: an array of bigint; locked bigint: how many these are; read bigint, last_at timestamptz, last_id
--          bigint: when the time of the last run that was read was over, and its id)
-- locks: FOR UPDATE on those runs, skipping locked ones
WITH read AS MATERIALIZED (
    SELECT r.ctid AS place, r.id, r.job_id, r.scheduled_at, (r.finished_at AT TIME ZONE 'UTC') + r.keep AS over_at
    FROM pgsched.runs r
    WHERE r.keep BETWEEN '0' AND '1000 years' AND r.finished_at < '9000-01-01 00:00Z' AND r.phase >= 3 /* ended */
      AND (r.finished_at AT TIME ZONE 'UTC') + r.keep >= (%(after)s::text::timestamptz AT TIME ZONE 'UTC')
      AND (r.finished_at AT TIME ZONE 'UTC') + r.keep <= (%(until)s::timestamptz AT TIME ZONE 'UTC')
      AND ((r.finished_at AT TIME ZONE 'UTC') + r.keep > (%(after)s::text::timestamptz AT TIME ZONE 'UTC')
           OR r.id > %(after_id)s)
    ORDER BY (r.finished_at AT TIME ZONE 'UTC') + r.keep, r.id LIMIT %(n)s
), jobs AS MATERIALIZED (
    SELECT j.id, (SELECT s.scheduled_at FROM pgsched.runs s WHERE s.job_id = j.id
                  ORDER BY s.scheduled_at DESC LIMIT 1) AS newest
    FROM pgsched.jobs j WHERE j.id = ANY (ARRAY(SELECT DISTINCT r.job_id FROM read r WHERE r.job_id IS NOT NULL))
), locked AS MATERIALIZED (
    -- by ctid: PostgreSQL follows a row that was updated since, and checks the conditions again
    SELECT r.id FROM pgsched.runs r
    WHERE r.phase >= 3 /* ended */ AND r.keep IS NOT NULL AND r.finished_at <= %(until)s
      AND ((r.covers_until AT TIME ZONE 'UTC') + r.keep <= (%(until)s::timestamptz AT TIME ZONE 'UTC')) IS NOT FALSE
      AND (%(durable)s OR set_config('synchronous_commit', 'off', true) IS NOT NULL)
      AND r.ctid = ANY (ARRAY(
        SELECT o.place FROM read o LEFT JOIN jobs j ON j.id = o.job_id
        WHERE (j.id IS NULL OR o.scheduled_at < j.newest) AND o.id <> ALL (%(aside)s::text::bigint[])))
    FOR UPDATE SKIP LOCKED
)
SELECT l.ids::text AS ids, cardinality(l.ids)::bigint AS locked, r.read, r.over_at AT TIME ZONE 'UTC' AS last_at,
    (SELECT max(o.id) FROM read o WHERE o.over_at = r.over_at) AS last_id
FROM (SELECT ARRAY(SELECT id FROM locked) AS ids) l, (SELECT count(*) AS read, max(over_at) AS over_at FROM read) r


-- name: prune_workers
-- mark workers not seen for three leases as stopped, and delete the rows of workers that stopped long ago, and old
-- terms.
-- params: keep_s float8 (how long rows stay after the last sign of life), n int (at most this many of each)
-- returns: gone bigint: rows of workers that were written
-- locks: those rows, skipping locked ones
WITH old AS MATERIALIZED (
    SELECT w.id FROM pgsched.workers w
    WHERE w.stopped_at < (SELECT clock_timestamp() - make_interval(secs => %(keep_s)s::float8))
    ORDER BY w.stopped_at LIMIT %(n)s FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM pgsched.workers w USING old WHERE w.id = old.id RETURNING 1
), terms AS (
    DELETE FROM pgsched.leader WHERE seen_at < clock_timestamp() - interval '30 days'
        AND term < (SELECT max(term) FROM pgsched.leader)
), silent AS MATERIALIZED (
    SELECT w.id FROM pgsched.workers w WHERE w.stopped_at IS NULL AND w.seen_at < clock_timestamp() - 3 * w.lease
    ORDER BY w.id LIMIT %(n)s FOR UPDATE SKIP LOCKED
), given_up AS (
    UPDATE pgsched.workers w SET stopped_at = w.seen_at FROM silent WHERE w.id = silent.id RETURNING 1
)
SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM given_up) AS gone


-- name: retention_rules
-- return all lengths of time for which runs are kept, and the other settings.
-- params: none
-- returns: (keeps_s float8[]: each once, the shortest first; version text: different after any change of a setting;
--          archive boolean; now timestamptz; counted_until text: no row that ended later may be deleted yet, see
--          rollups.sql)
-- locks: none
WITH said AS (
    SELECT '' AS whose, keep FROM pgsched.retention
    UNION ALL SELECT 'queue ' || name, keep FROM pgsched.queues WHERE keep IS NOT NULL
    UNION ALL SELECT 'job ' || id, keep FROM pgsched.jobs WHERE keep IS NOT NULL
)
SELECT ARRAY(SELECT DISTINCT extract(epoch FROM k.value::interval)::float8 AS s FROM said, jsonb_each_text(said.keep) k
             UNION SELECT extract(epoch FROM interval '7 days')::float8 ORDER BY s) AS keeps_s,
    (SELECT md5(string_agg(whose || said.keep::text, ',' ORDER BY whose)) FROM said) AS version,
    coalesce((SELECT archive FROM pgsched.retention), false) AS archive,
    clock_timestamp() AS now, (SELECT counted_until::text FROM pgsched.rollup_mark) AS counted_until


-- name: retention_show
-- return how long everything is kept.
-- params: none
-- returns: one row: keep, archive, keep_minutes, keep_hours, keep_audit; jobs and queues: json of [{name, keep}] with
--          their own settings; counted_until timestamptz (null: nothing is counted yet)
-- locks: none
SELECT r.keep, r.archive, r.keep_minutes, r.keep_hours, r.keep_audit,
    (SELECT coalesce(json_agg(json_build_object('name', q.name, 'keep', q.keep) ORDER BY q.name), '[]')
     FROM pgsched.queues q WHERE q.keep IS NOT NULL) AS queues,
    (SELECT coalesce(json_agg(json_build_object('name', j.name, 'keep', j.keep) ORDER BY j.name), '[]')
     FROM pgsched.jobs j WHERE j.keep IS NOT NULL) AS jobs,
    (SELECT nullif(counted_until, '-infinity') FROM pgsched.rollup_mark) AS counted_until
FROM pgsched.retention r
