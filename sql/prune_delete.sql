-- prune_delete: delete locked runs with their attempts, output and edges. What became of a run stays with the
-- idempotency keys that it was made or found by, if they are its owner's, until they expire. A run stays while one that
-- waited for it is not finished: it may ask for its result; and while a slot waits that will have it as a parent
-- (dependencies_slots). A statement of its own, behind the lock: nobody can make an edge to them any more.
-- params: ids text (an array of bigint), archive boolean (into pgsched.archived_runs), tell boolean
-- returns: (gone bigint: how many went; run null); and if `tell` (gone null; run json: the whole row with its attempts
--          and output) for each of them
-- locks: the deleted rows, and the keys that stand for them
WITH wanted AS MATERIALIZED (
    SELECT d.parent_id AS id FROM pgsched.dependencies d JOIN pgsched.runs c ON c.id = d.run_id
    WHERE d.parent_id = ANY (%(ids)s::text::bigint[]) AND c.phase < 3
), held AS MATERIALIZED (
    SELECT a.job_id::bigint AS job_id, w.scheduled_at AS slot
    FROM pgsched.runs w CROSS JOIN LATERAL jsonb_array_elements_text(w.options -> 'after_jobs') AS a(job_id)
    WHERE w.phase = 0 AND w.ready_at IS NULL AND w.available_at = '8998-01-01 00:00Z'
), gone AS (
    DELETE FROM pgsched.runs r WHERE r.id = ANY (%(ids)s::text::bigint[]) AND r.id NOT IN (SELECT w.id FROM wanted w)
      AND (r.job_id IS NULL OR ((r.job_id, r.scheduled_at) IN (SELECT h.job_id, h.slot FROM held h)) IS NOT TRUE)
      AND (r.covers_from IS NULL OR (SELECT true FROM held h WHERE h.job_id = r.job_id
                                     AND h.slot BETWEEN r.covers_from AND r.covers_until LIMIT 1) IS NULL)
    -- no more than is asked for: each column of each row is copied
    RETURNING r.id, r.idempotency_key,
        CASE WHEN %(archive)s OR %(tell)s THEN to_jsonb(r) - '{phase,token,lease_until}'::text[] || jsonb_build_object(
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
    INSERT INTO pgsched.archived_runs (run_id, job_id, job, queue, task, state, scheduled_at, finished_at, run)
    SELECT g.id, a.job_id, j.name, a.queue, a.task, a.state, a.scheduled_at, a.finished_at, g.run
    FROM gone g CROSS JOIN LATERAL jsonb_to_record(g.run) AS a(job_id bigint, queue text, task text, state text,
        scheduled_at timestamptz, finished_at timestamptz) LEFT JOIN pgsched.jobs j ON j.id = a.job_id WHERE %(archive)s
)
SELECT count(*) AS gone, NULL AS run FROM gone UNION ALL SELECT NULL, run FROM gone WHERE %(tell)s
