-- The index of 0001 made a key last as long as its run's row, whatever its retention, and every run paid for it.
DO $$
DECLARE
    last text;
    upto text;
BEGIN
    LOOP
        SELECT max(b.key) INTO upto FROM (
            SELECT r.idempotency_key AS key FROM pgsched.runs r
            WHERE r.idempotency_key IS NOT NULL AND (last IS NULL OR r.idempotency_key > last)
            ORDER BY r.idempotency_key LIMIT 10000) b;
        EXIT WHEN upto IS NULL;
        INSERT INTO pgsched.kept_keys (scope, key, run_id, task, created_at, expires_at)
        SELECT 'idempotency', r.idempotency_key, r.id, r.task, r.created_at, clock_timestamp() + interval '24 hours'
        FROM pgsched.runs r
        WHERE r.idempotency_key IS NOT NULL AND r.idempotency_key <= upto AND (last IS NULL OR r.idempotency_key > last)
        ON CONFLICT (scope, key) DO NOTHING;
        COMMIT;
        last := upto;
    END LOOP;
END $$;
