-- tick_replace: end the open runs of jobs whose new slot replaces them: held and queued ones at once, running ones by
-- asking (replace) or by taking the claim away, which fences the former owner (terminate). A claim that a handler
-- holds by assert_claim is asked for as well: waiting for its transaction would hold up every other job. So would
-- waiting for a run that somebody else has locked: nothing of such a job is ended, and its slots are decided later.
-- params: parallel arrays job_ids bigint[], terminates boolean[]
-- returns: job_id of the jobs that have to wait; one row of null if there is none
-- locks: FOR NO KEY UPDATE on those runs, FOR UPDATE on those whose claim is taken away; never waits
WITH open AS MATERIALIZED (
    SELECT r.id, r.job_id, s.terminate
    FROM unnest(%(job_ids)s::bigint[], %(terminates)s::boolean[]) AS s(job_id, terminate)
    CROSS JOIN LATERAL (  -- each job looked up in the index, whatever the statistics say
        SELECT id, job_id FROM pgsched.runs WHERE job_id = s.job_id AND phase < 3 AND origin <> 'backfill' OFFSET 0) r
), locked AS MATERIALIZED (
    SELECT r.id, r.state, r.token, r.attempt, r.started_at, r.worker_id
    FROM open JOIN pgsched.runs r ON r.id = open.id
    WHERE r.phase < 3
    FOR NO KEY UPDATE OF r SKIP LOCKED
), busy AS MATERIALIZED (
    SELECT DISTINCT job_id FROM open WHERE id NOT IN (SELECT id FROM locked)
), old AS MATERIALIZED (
    SELECT locked.*, open.terminate FROM locked JOIN open USING (id) WHERE job_id NOT IN (SELECT job_id FROM busy)
), taken AS MATERIALIZED (
    SELECT r.id FROM old JOIN pgsched.runs r ON r.id = old.id WHERE old.state = 'running' AND old.terminate
    FOR UPDATE OF r SKIP LOCKED
), ended AS (
    UPDATE pgsched.runs r SET
        state = CASE WHEN old.state = 'running' AND taken.id IS NULL THEN 'running' ELSE 'cancelled' END,
        finished_at = CASE WHEN old.state = 'running' AND taken.id IS NULL THEN NULL ELSE clock_timestamp() END,
        token = CASE WHEN old.state = 'running' AND taken.id IS NULL THEN r.token END,
        cancel_requested_at = coalesce(r.cancel_requested_at, clock_timestamp()),
        cancel_reason = 'overlap: replaced by the next slot', reason = 'overlap: replaced by the next slot'
    FROM old LEFT JOIN taken ON taken.id = old.id WHERE r.id = old.id
), evidence AS (
    INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, started_at, worker_id, worker, error)
    SELECT id, token, attempt, 'cancelled', started_at, worker_id,
        (SELECT name FROM pgsched.workers w WHERE w.id = worker_id), 'overlap: terminated by the next slot'
    FROM old JOIN taken USING (id)
    ON CONFLICT (run_id, token) DO NOTHING
), woken AS (
    SELECT pg_notify('pgsched_cancel', id::text) FROM old WHERE state = 'running'
)
-- woken comes first: a CTE that only selects is not run at all where nothing asks for its rows
SELECT busy.job_id, told.notified FROM (SELECT count(*) AS notified FROM woken) told LEFT JOIN busy ON true
