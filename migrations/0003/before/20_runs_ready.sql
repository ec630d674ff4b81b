-- What waits for limits alone, by queue and key in the order of admission.
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_ready
    ON pgsched.runs (queue, coalesce(concurrency_key, ''), priority, ready_at, id)
    WHERE ready_at IS NOT NULL AND phase = 0;
