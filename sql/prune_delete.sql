-- prune_delete: delete locked runs with their attempts, output and edges. What became of a run stays with its
-- idempotency key until that expires. A run stays while one that waited for it is not finished: it may ask for its
-- result. A statement of its own, behind the lock: nobody can make an edge to them any more.
-- params: ids text (an array of bigint), archive boolean (into pgsched.archived_runs), tell boolean
-- returns: (id, run json: the whole row with its attempts and output if `tell`), one row for each that went
-- locks: the deleted rows, and the keys that stand for them
WITH gone AS (
    DELETE FROM pgsched.runs r WHERE r.id = ANY (%(ids)s::text::bigint[]) AND NOT EXISTS (
        SELECT FROM pgsched.dependencies d JOIN pgsched.runs c ON c.id = d.run_id
        WHERE d.parent_id = r.id AND c.phase < 3 OFFSET 0)
    RETURNING r.id, r.job_id, r.queue, r.task, r.state, r.scheduled_at, r.finished_at, r.idempotency_key,
        CASE WHEN r.idempotency_key IS NOT NULL THEN r.result END AS result,
        CASE WHEN r.idempotency_key IS NOT NULL THEN r.error END AS error,
        CASE WHEN %(archive)s OR %(tell)s THEN to_jsonb(r) - '{phase,token,lease_until}'::text[] || jsonb_build_object(
            'attempts', (SELECT coalesce(jsonb_agg(to_jsonb(a) - '{run_id,token}'::text[] ORDER BY a.finished_at), '[]')
                         FROM pgsched.attempts a WHERE a.run_id = r.id),
            'output', (SELECT CASE WHEN sum(octet_length(l.chunk)) > 50000000 THEN to_jsonb('more than 50 MB'::text)
                              ELSE coalesce(jsonb_agg(to_jsonb(l) - '{run_id,token}'::text[] ORDER BY l.attempt, l.seq), '[]')
                              END
                       FROM pgsched.run_logs l WHERE l.run_id = r.id)) END AS run
), attempts_gone AS (
    DELETE FROM pgsched.attempts a USING gone WHERE a.run_id = gone.id
), logs_gone AS (
    DELETE FROM pgsched.run_logs l USING gone WHERE l.run_id = gone.id
), edges_gone AS (
    DELETE FROM pgsched.dependencies d USING gone WHERE d.run_id = gone.id
), told AS (
    UPDATE pgsched.kept_keys k
    SET state = gone.state, result = gone.result, error = gone.error, finished_at = gone.finished_at
    -- by their keys, and not by a join that reads all of them
    FROM gone WHERE k.scope = 'idempotency' AND k.key = gone.idempotency_key AND k.run_id = gone.id
        AND k.key = ANY (ARRAY(SELECT g.idempotency_key FROM gone g WHERE g.idempotency_key IS NOT NULL))
), archived AS (
    INSERT INTO pgsched.archived_runs (run_id, job_id, job, queue, task, state, scheduled_at, finished_at, run)
    SELECT g.id, g.job_id, j.name, g.queue, g.task, g.state, g.scheduled_at, g.finished_at, g.run
    FROM gone g LEFT JOIN pgsched.jobs j ON j.id = g.job_id WHERE %(archive)s
)
SELECT id, CASE WHEN %(tell)s THEN run END AS run FROM gone
