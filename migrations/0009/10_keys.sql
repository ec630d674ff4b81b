-- A key that is kept belongs to the role that took it (column owner), as long as it is kept: who may not act for that role
-- is refused, as with a unique key that another owner's open run has (0003/52_enqueue.sql). Where roles are in force these
-- two functions run as the tables' owner, and nobody else writes the table.

-- Takes a key for a run that is about to be made, or tells whose it is: `run_id` is null if it is the caller's now.
-- Waits for a transaction that is just taking the same key.
CREATE OR REPLACE FUNCTION pgsched.take_key(scope text, key text, task text, expires_at timestamptz,
    OUT run_id bigint, OUT by_task text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    holder name;
BEGIN
    LOOP
        INSERT INTO pgsched.kept_keys (scope, key, task, expires_at)
        VALUES (take_key.scope, take_key.key, take_key.task, take_key.expires_at)
        ON CONFLICT (scope, key) DO NOTHING;
        EXIT WHEN FOUND;
        SELECT k.run_id, k.task, k.owner INTO take_key.run_id, take_key.by_task, holder FROM pgsched.kept_keys k
        WHERE k.scope = take_key.scope AND k.key = take_key.key AND k.expires_at > clock_timestamp()
            AND k.run_id IS NOT NULL;
        IF FOUND THEN
            -- null: there are no roles, or it is from before there were; then it gives no second run to anybody
            PERFORM pgsched.refuse_others(format('the %s "%s"', CASE take_key.scope WHEN 'idempotency'
                THEN 'idempotency_key' ELSE 'unique_key' END, left(take_key.key, 60)), holder) WHERE holder IS NOT NULL;
            EXIT;
        END IF;
        -- one that has expired, or stands for no run, is taken over by one of those who come; the others find it taken
        UPDATE pgsched.kept_keys k SET run_id = NULL, task = take_key.task, created_at = clock_timestamp(),
            expires_at = take_key.expires_at, state = NULL, result = NULL, error = NULL, finished_at = NULL
        WHERE k.scope = take_key.scope AND k.key = take_key.key
            AND (k.expires_at <= clock_timestamp() OR k.run_id IS NULL);
        EXIT WHEN FOUND;
    END LOOP;
END $$;

-- The key that was just taken stands for this run from now on; if for none, it is free again. One that stands for a run
-- already stays as it is. Who binds it is its owner: also of one that somebody else took and never bound.
CREATE FUNCTION pgsched.bind_key(scope text, key text, run_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF bind_key.run_id IS NULL THEN
        DELETE FROM pgsched.kept_keys k
        WHERE k.scope = bind_key.scope AND k.key = bind_key.key AND k.run_id IS NULL;
    ELSE
        UPDATE pgsched.kept_keys k SET run_id = bind_key.run_id, owner = DEFAULT
        WHERE k.scope = bind_key.scope AND k.key = bind_key.key AND k.run_id IS NULL;
    END IF;
END $$;
