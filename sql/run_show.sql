-- run_show: one run, whole, with the names of its job and worker.
-- params: id bigint
-- returns: one row, or none
-- locks: none
SELECT r.id, r.job_id, j.name AS job, r.state, r.queue, r.kind, r.task, r.args, r.origin, r.owner, r.scheduled_at,
    r.available_at, r.created_at, r.started_at, r.finished_at, r.lease_until, r.worker_id, w.name AS worker,
    r.attempt, r.max_attempts, r.priority, r.crashes, r.timeout, r.kill_after, r.backoff, r.backoff_base,
    r.backoff_max, r.backoff_jitter, r.expires_at, r.options, r.unique_key, r.idempotency_key, r.concurrency_key,
    r.tags, r.cancel_requested_at, r.cancel_reason, r.reason, r.error, r.result, r.progress, r.covers_from,
    r.covers_until, r.covers_count, r.covers_state, r.covers_reason, r.backfill_id, r.ready_at,
    clock_timestamp() AS now
FROM pgsched.runs r LEFT JOIN pgsched.jobs j ON j.id = r.job_id LEFT JOIN pgsched.workers w ON w.id = r.worker_id
WHERE r.id = %(id)s
