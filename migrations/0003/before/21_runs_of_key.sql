-- What waits for limits alone, by key in the order of arrival; and what of a key was admitted.
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_of_key ON pgsched.runs (concurrency_key, phase, ready_at, id)
    WHERE concurrency_key IS NOT NULL AND phase < 3;
