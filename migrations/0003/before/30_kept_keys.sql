-- Keys that outlive the run they stand for (51_kept_keys.sql). From now on every new one is kept here too.
CREATE TABLE IF NOT EXISTS pgsched.kept_keys (
    scope       text NOT NULL,         -- idempotency, or a bucket's length and beginning
    key         text NOT NULL,
    run_id      bigint,                -- null only within the transaction that is making the run
    task        text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL,
    -- what became of the run, once its row is pruned
    state       text,
    result      jsonb,
    error       text,
    finished_at timestamptz,
    PRIMARY KEY (scope, key)
);
CREATE INDEX IF NOT EXISTS kept_keys_expires_at ON pgsched.kept_keys (expires_at);

-- With its owner's rights: who inserts runs has none on a table that is new.
CREATE OR REPLACE FUNCTION pgsched.keep_key() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO pgsched.kept_keys (scope, key, run_id, task, created_at, expires_at)
    VALUES ('idempotency', NEW.idempotency_key, NEW.id, NEW.task, NEW.created_at, clock_timestamp() + interval '24 hours')
    ON CONFLICT (scope, key) DO NOTHING;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER a_keep_key AFTER INSERT ON pgsched.runs FOR EACH ROW WHEN (NEW.idempotency_key IS NOT NULL)
    EXECUTE FUNCTION pgsched.keep_key();
