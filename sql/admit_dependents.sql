-- admit_dependents: what the edges of runs that wait for others come to. All met: the run becomes
-- claimable, or waits for its own later time, its limits, or the overlap policy that held it as well. One failed, or all
-- of those of which one is enough: it ends, and with it every run below that would end for that reason, each saying for
-- which parent. A slot of a job is skipped, any other run cancelled.
-- params: ids bigint[]: the runs to look at
-- returns: (ready bigint, ended bigint, notified bigint)
-- locks: row locks on the runs that end, skipping locked ones: they are found again by their parents, which have ended
WITH RECURSIVE edges AS MATERIALIZED (
    SELECT c.id, d.parent_id, coalesce(d.any_of, false) AS any_of, coalesce(d.state, 'met') AS state
    FROM unnest(%(ids)s::text::bigint[]) AS c(id)
    LEFT JOIN LATERAL (SELECT * FROM pgsched.dependencies e WHERE e.run_id = c.id OFFSET 0) d ON true
), judged AS MATERIALIZED (
    SELECT id, coalesce(bool_or(state = 'failed' AND NOT any_of)
               OR bool_or(any_of) AND bool_and(state = 'failed' OR NOT any_of), false) AS failed,
        bool_and(state = 'met' OR any_of) AND (NOT bool_or(any_of) OR bool_or(any_of AND state = 'met')) AS met,
        min(parent_id) FILTER (WHERE state = 'failed') AS parent_id
    FROM edges GROUP BY id
), free AS MATERIALIZED (
    SELECT r.id, (r.options ->> 'not_before')::timestamptz AS not_before,
        coalesce((r.options ->> 'not_before')::timestamptz > clock_timestamp(), false) AS later,
        coalesce(r.options ? 'overlap', false) AS overlap, pgsched.is_limited(r.queue, r.concurrency_key) AS limited
    FROM judged j JOIN pgsched.runs r ON r.id = j.id
    WHERE j.met AND NOT j.failed AND r.phase = 0 AND r.available_at >= '8999-01-01 00:00Z'
), ready AS (
    UPDATE pgsched.runs r SET options = nullif(r.options - '{not_before,overlap,after_jobs}'::text[], '{}'),
        available_at = greatest(clock_timestamp(), f.not_before),
        state = CASE WHEN f.overlap THEN 'waiting' WHEN f.later THEN 'scheduled' WHEN f.limited THEN 'waiting'
                     ELSE 'queued' END,
        phase = CASE WHEN f.overlap THEN 0 WHEN f.later THEN 1 WHEN f.limited THEN 0 ELSE 2 END,
        ready_at = CASE WHEN f.limited AND NOT f.overlap AND NOT f.later THEN clock_timestamp() END
    FROM free f WHERE r.id = f.id
    RETURNING r.queue, r.state
), woken AS (
    SELECT pg_notify('pgsched_runs', queue) FROM (SELECT DISTINCT queue FROM ready WHERE state = 'queued') q
), doomed AS (
    SELECT id, parent_id FROM judged WHERE failed
    UNION
    SELECT d.run_id, d.parent_id FROM doomed CROSS JOIN LATERAL (
        SELECT e.run_id, e.parent_id FROM pgsched.dependencies e
        WHERE e.parent_id = doomed.id AND e.state = 'open' AND e.on_failure = 'cancel' AND NOT e.any_of
          AND EXISTS (SELECT FROM pgsched.runs c WHERE c.id = e.run_id AND c.phase = 0
                      AND c.available_at >= '8998-01-01 00:00Z')
        OFFSET 0) d
), reasons AS MATERIALIZED (
    SELECT id, min(parent_id) AS parent_id FROM doomed GROUP BY id
), held AS MATERIALIZED (
    SELECT r.id FROM pgsched.runs r WHERE r.id = ANY (ARRAY(SELECT id FROM reasons))
      AND r.phase = 0 AND r.available_at >= '8998-01-01 00:00Z'
    FOR NO KEY UPDATE SKIP LOCKED
), ended AS (
    UPDATE pgsched.runs r SET state = CASE r.origin WHEN 'schedule' THEN 'skipped' ELSE 'cancelled' END,
        finished_at = clock_timestamp(), available_at = clock_timestamp(),
        -- one that ends by this very statement is not seen to have ended
        reason = CASE WHEN p.id IS NULL THEN format('dependency: run %%s is gone', reasons.parent_id)
            ELSE format('dependency: run %%s (%%s) is %%s', p.id, p.task, CASE WHEN p.phase >= 3 THEN p.state
                        WHEN p.origin = 'schedule' THEN 'skipped' ELSE 'cancelled' END) END
    FROM held JOIN reasons ON reasons.id = held.id LEFT JOIN pgsched.runs p ON p.id = reasons.parent_id
    WHERE r.id = held.id
    RETURNING r.id
)
SELECT (SELECT count(*) FROM ready) AS ready, (SELECT count(*) FROM ended) AS ended,
    (SELECT count(*) FROM woken) AS notified
