-- Keys that outlive the run they stand for: idempotency keys, and unique keys of a bucket of time. A primary key of
-- their own decides who is first, so that pruned history frees none of them, and other runs pay for no index.
-- The table is made and filled before (before/30_kept_keys.sql), and until now a trigger kept it so.
DROP TRIGGER IF EXISTS a_keep_key ON pgsched.runs;
DROP FUNCTION IF EXISTS pgsched.keep_key();
DROP INDEX pgsched.runs_idempotency_key;

-- An INSERT that names a key by itself would have it ignored: only pgsched.enqueue takes keys (52_enqueue.sql).
CREATE FUNCTION pgsched.refuse_untaken_key() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pgsched.kept_keys k
                   WHERE k.scope = 'idempotency' AND k.key = NEW.idempotency_key AND k.run_id IS NULL) THEN
        PERFORM pgsched.raise_bad_value(
            'idempotency_key: an INSERT cannot keep it: use pgsched.enqueue(..., idempotency_key => ...)', 'runs');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_refuse_key BEFORE INSERT ON pgsched.runs FOR EACH ROW WHEN (NEW.idempotency_key IS NOT NULL)
    EXECUTE FUNCTION pgsched.refuse_untaken_key();

-- Takes a key for a run that is about to be made, or tells whose it is: `run_id` is null if it is the caller's now.
-- Waits for a transaction that is just taking the same key.
CREATE FUNCTION pgsched.take_key(scope text, key text, task text, expires_at timestamptz,
    OUT run_id bigint, OUT by_task text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    LOOP
        INSERT INTO pgsched.kept_keys (scope, key, task, expires_at)
        VALUES (take_key.scope, take_key.key, take_key.task, take_key.expires_at)
        ON CONFLICT (scope, key) DO NOTHING;
        EXIT WHEN FOUND;
        SELECT k.run_id, k.task INTO take_key.run_id, take_key.by_task FROM pgsched.kept_keys k
        WHERE k.scope = take_key.scope AND k.key = take_key.key AND k.expires_at > clock_timestamp();
        EXIT WHEN FOUND;
        -- one that has expired is taken over by one of those who come; the others find it taken
        UPDATE pgsched.kept_keys k SET run_id = NULL, task = take_key.task, created_at = clock_timestamp(),
            expires_at = take_key.expires_at, state = NULL, result = NULL, error = NULL, finished_at = NULL
        WHERE k.scope = take_key.scope AND k.key = take_key.key AND k.expires_at <= clock_timestamp();
        EXIT WHEN FOUND;
    END LOOP;
END $$;

-- The run that the first enqueue with an idempotency key gave, and what became of it; no row once the key has expired.
CREATE FUNCTION pgsched.first_result(idempotency_key text)
RETURNS TABLE (run_id bigint, state text, result jsonb, error text, finished_at timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT k.run_id, coalesce(r.state, k.state), CASE WHEN r.id IS NULL THEN k.result ELSE r.result END,
        CASE WHEN r.id IS NULL THEN k.error ELSE r.error END, coalesce(r.finished_at, k.finished_at)
    FROM pgsched.kept_keys k LEFT JOIN pgsched.runs r ON r.id = k.run_id
    WHERE k.scope = 'idempotency' AND k.key = first_result.idempotency_key AND k.expires_at > clock_timestamp()
$$;
