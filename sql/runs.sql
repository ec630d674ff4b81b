-- Runs: how people read and change them.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: open_runs
-- count the runs of some jobs that have not ended.
-- params: names text[]
-- returns: n bigint
-- locks: none
SELECT count(*) AS n FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id
WHERE r.phase < 3 /* open */ AND j.name = ANY (%(names)s::text[])


-- name: runs_await
-- ask whoever ends these runs to notify pgsched_ended; in a transaction of its own.
-- params: ids bigint[] (at most 10,000)
-- returns: n: how many could not be noted, because another session has locked them
-- locks: those runs, skipping locked ones
SELECT pgsched.await_runs(%(ids)s::text::bigint[]) AS n


-- name: runs_ended
-- return those of these runs that have ended or do not exist.
-- params: ids bigint[]
-- returns: (id, state: null where there is no such run)
-- locks: none
SELECT g.id, r.state
FROM unnest(%(ids)s::text::bigint[]) AS g(id)
LEFT JOIN LATERAL (SELECT f.state, f.phase FROM pgsched.runs f WHERE f.id = g.id OFFSET 0) r ON true
WHERE r.phase IS NULL OR r.phase >= 3 /* ended */


-- name: run_outcome
-- return how a run has ended, or its state so far.
-- params: id bigint
-- returns: (state, result, error, reason, task: null for other kinds, traceback: of the newest attempt that failed), or no row
-- locks: none
SELECT r.state, r.result, r.error, r.reason, CASE r.kind WHEN 'task' THEN r.task END AS task,
    (SELECT a.traceback FROM pgsched.attempts a WHERE a.run_id = r.id ORDER BY a.finished_at DESC, a.attempt DESC LIMIT 1)
        AS traceback
FROM pgsched.runs r WHERE r.id = %(id)s


-- name: run_attempts
-- return the attempts of a run that did not succeed, oldest first.
-- params: id bigint
-- returns: one row per attempt
-- locks: none
SELECT attempt, outcome, started_at, finished_at, worker_id, worker, error, traceback, log_tail
FROM pgsched.attempts WHERE run_id = %(id)s ORDER BY finished_at, attempt


-- name: run_cancel
-- cancel a run, at once or by asking its worker.
-- params: id bigint, reason text
-- returns: what: cancelled, requested, or the final state that it already had; null: no such run
-- locks: that run
SELECT pgsched.cancel(%(id)s, %(reason)s) AS what


-- name: run_cancel_many
-- cancel those of these runs that are still in one of the given states.
-- params: ids bigint[], states text[], reason text
-- returns: (id, before, after: cancelled, or requested of its worker, skipped: null, or why the run was left alone); no
--          row for a run that does not exist or is locked
-- locks: those runs, skipping locked ones
WITH held AS MATERIALIZED (
    SELECT found.* FROM unnest(%(ids)s::text::bigint[]) AS g(id) CROSS JOIN LATERAL pgsched.hold_run(g.id) found
), judged AS MATERIALIZED (
    SELECT id, state, CASE WHEN state <> ALL (%(states)s::text::text[]) THEN 'it is ' || state || ' by now' END
        AS obstacle
    FROM held
)
SELECT id, state AS before, CASE WHEN obstacle IS NULL THEN pgsched.cancel(id, %(reason)s) END AS after,
    obstacle AS skipped
FROM judged ORDER BY id


-- name: run_holding
-- return what keeps a run from starting: pauses, and the limits that it waits for.
-- params: id bigint
-- returns: one row: pauses json (what, name, reason, paused_by, resume_at) or null; key, limit_name, concurrency, rate,
--          period_s, admitted (of the key, at most 10,000 are counted), ahead (runs of its key that have waited longer,
--          at most 1,000); queue_concurrency, queue_rate, queue_period_s, queue_admitted, fair. No row if there is no
--          such run
-- locks: none
SELECT (SELECT json_agg(json_build_object('what', p.what, 'name', p.name, 'reason', p.reason, 'paused_by', p.paused_by))
        FROM pgsched.pauses p
        WHERE (p.what, p.name) IN (('all', ''), ('queue', r.queue), ('task', r.task), ('limit', r.queue))
          AND coalesce(p.resume_at > clock_timestamp(), true)) AS pauses,
    r.concurrency_key AS key, l.name AS limit_name, l.concurrency, l.rate, l.period_s, l.ordered,
    (SELECT count(*) FROM (SELECT FROM pgsched.runs k WHERE k.concurrency_key = r.concurrency_key
        AND k.phase = 2 /* claimable */
                           LIMIT 10000) f) AS admitted,
    (SELECT count(*) FROM (SELECT FROM pgsched.runs k WHERE k.concurrency_key = r.concurrency_key
        AND k.phase = 0 /* waiting */
                           AND k.ready_at < r.ready_at LIMIT 1000) f) AS ahead,
    q.concurrency_limit AS queue_concurrency, q.rate AS queue_rate,
    extract(epoch FROM q.rate_period)::float8 AS queue_period_s, coalesce(q.fair, false) AS fair,
    (SELECT count(*) FROM (SELECT FROM pgsched.runs k WHERE q.concurrency_limit IS NOT NULL
        AND k.phase = 2 /* claimable */
                           AND k.queue = r.queue ORDER BY k.queue, k.priority LIMIT 10000) f) AS queue_admitted
FROM pgsched.runs r LEFT JOIN LATERAL pgsched.limit_of(r.concurrency_key) l ON true
LEFT JOIN pgsched.queues q ON q.name = r.queue
WHERE r.id = %(id)s


-- name: run_present
-- return those of these runs that exist.
-- params: ids bigint[]
-- returns: id
-- locks: none
SELECT id FROM pgsched.runs WHERE id = ANY (%(ids)s::text::bigint[])


-- name: run_retry
-- revive a dead, cancelled, missed or skipped run.
-- params: id bigint, now boolean (start it even if runs that it waited for did not succeed)
-- returns: (before: its state, after: queued or waiting, or the unchanged state; null: no such run)
-- locks: that run
SELECT (SELECT state FROM pgsched.runs WHERE id = %(id)s) AS before,
    CASE WHEN %(now)s THEN pgsched.retry_now(%(id)s) ELSE pgsched.retry(%(id)s) END AS after


-- name: run_retry_many
-- revive those of these runs that are still in one of the given states.
-- params: ids bigint[], states text[], now boolean (start them even if runs that they waited for did not succeed)
-- returns: (id, before, after: queued or waiting, skipped: null, or why the run was left alone); no row for a run that
--          does not exist or is locked
-- locks: those runs, skipping locked ones. A unique_key that an unfinished run has, or a run revived here before it, is
--        no error. A key that is taken after the check is one, and fails the statement.
WITH held AS MATERIALIZED (
    SELECT found.* FROM unnest(%(ids)s::text::bigint[]) AS g(id) CROSS JOIN LATERAL pgsched.hold_run(g.id) found
), judged AS MATERIALIZED (
    SELECT id, state, CASE
        WHEN state <> ALL (%(states)s::text::text[]) THEN 'it is ' || state || ' by now'
        WHEN unique_key IS NOT NULL AND EXISTS (
            SELECT FROM pgsched.runs o WHERE o.unique_key = h.unique_key AND o.phase < 3 /* open */)
            OR unique_key IS NOT NULL AND EXISTS (
            SELECT FROM held o WHERE o.unique_key = h.unique_key AND o.id < h.id
                AND o.state = ANY (%(states)s::text::text[]))
            THEN 'an unfinished run has its unique_key' END AS obstacle
    FROM held h
)
SELECT id, state AS before, CASE WHEN obstacle IS NOT NULL THEN NULL WHEN %(now)s THEN pgsched.retry_now(id)
    ELSE pgsched.retry(id) END AS after, obstacle AS skipped
FROM judged ORDER BY id


-- name: run_update
-- change a run that has not started; a null leaves a column as it is.
-- params: id bigint, priority integer, at timestamptz, queue text
-- returns: state after that; null: no such run
-- locks: that run
SELECT pgsched.update_run(%(id)s, %(priority)s::integer, %(at)s::timestamptz, %(queue)s::text) AS state


-- name: run_show
-- return one run with all its columns, and the names of its job and worker.
-- params: id bigint
-- returns: one row, or none
-- locks: none
SELECT r.id, r.job_id, j.name AS job, r.state, r.queue, r.kind, r.task, r.args, r.origin, r.owner, r.scheduled_at,
    r.nominal_at, r.interval_start, r.available_at, r.created_at, r.started_at, r.finished_at, r.lease_until, r.worker_id,
    w.name AS worker, r.attempt, r.max_attempts, r.priority, r.crashes, r.timeout, r.kill_after, r.backoff, r.backoff_base,
    r.backoff_max, r.backoff_jitter, r.expires_at, r.keep, r.options, r.unique_key, r.idempotency_key, r.concurrency_key,
    r.tags, r.cancel_requested_at, r.cancel_reason, r.reason, r.error, r.result, r.progress, r.covers_from,
    r.covers_until, r.covers_count, r.covers_state, r.covers_reason, r.backfill_id, r.ready_at,
    clock_timestamp() AS now
FROM pgsched.runs r LEFT JOIN pgsched.jobs j ON j.id = r.job_id LEFT JOIN pgsched.workers w ON w.id = r.worker_id
WHERE r.id = %(id)s


-- name: runs_bad_since
-- return since when n runs have failed, through the index of those.
-- params: until timestamptz (null: now), n int
-- returns: finished_at of the n-th failed run before `until`, or no row if there are fewer
-- locks: none
SELECT finished_at FROM pgsched.runs
WHERE phase = 4 /* ended badly */ AND (%(until)s::timestamptz IS NULL OR finished_at < %(until)s::timestamptz)
ORDER BY finished_at DESC OFFSET %(n)s LIMIT 1


-- name: runs_of_job_newest
-- return the newest runs of a job by slot, through the index over slots.
-- params: job text, before_id bigint (null: the newest; otherwise only earlier slots than that run's), n int
-- returns: id, newest first
-- locks: none
SELECT r.id FROM pgsched.jobs j CROSS JOIN LATERAL (
    SELECT s.id FROM pgsched.runs s
    WHERE s.job_id = j.id AND (%(before_id)s::bigint IS NULL OR s.scheduled_at < (
        SELECT b.scheduled_at FROM pgsched.runs b WHERE b.id = %(before_id)s::bigint))
    ORDER BY s.job_id DESC, s.scheduled_at DESC LIMIT %(n)s
) r
WHERE j.name = %(job)s


-- name: run_newest_id
-- return the highest id of a run, or 0.
-- params: none
-- returns: one row: id
-- locks: none
SELECT coalesce(max(id), 0) AS id FROM pgsched.runs


-- name: run_relatives
-- return the runs that a run waits for, and the runs that wait for it, up to n each.
-- params: id bigint, n int
-- returns: (side: before or behind, id, state, task, edge: met, failed or open, on_failure), by id; state is null for a
--          pruned run
-- locks: none
SELECT e.side, e.id, r.state, r.task, e.edge, e.on_failure
FROM (
    (SELECT 'before' AS side, parent_id AS id, state AS edge, on_failure FROM pgsched.dependencies
     WHERE run_id = %(id)s ORDER BY parent_id LIMIT %(n)s)
    UNION ALL
    (SELECT 'behind', run_id, state, on_failure FROM pgsched.dependencies
     WHERE parent_id = %(id)s ORDER BY parent_id, run_id LIMIT %(n)s)
) e LEFT JOIN LATERAL (SELECT state, task FROM pgsched.runs f WHERE f.id = e.id OFFSET 0) r ON true
ORDER BY e.side, e.id
