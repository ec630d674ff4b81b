-- Where there are roles, keys that are kept already belong to the owners of their runs, as far as those are still known.
DO $$
DECLARE
    last_scope text := '';
    last_key text := '';
    to_scope text;
    to_key text;
BEGIN
    WHILE EXISTS (SELECT FROM pg_policies WHERE schemaname = 'pgsched' AND policyname = 'pgsched_all') LOOP
        SELECT b.scope, b.key INTO to_scope, to_key FROM (
            SELECT k.scope, k.key FROM pgsched.kept_keys k WHERE (k.scope, k.key) > (last_scope, last_key)
            ORDER BY k.scope, k.key LIMIT 10000) b ORDER BY b.scope DESC, b.key DESC LIMIT 1;
        EXIT WHEN NOT FOUND;
        UPDATE pgsched.kept_keys k SET owner = r.owner FROM pgsched.runs r
        WHERE r.id = k.run_id AND r.owner IS NOT NULL AND k.owner IS NULL
            AND (k.scope, k.key) > (last_scope, last_key) AND (k.scope, k.key) <= (to_scope, to_key);
        COMMIT;
        last_scope := to_scope;
        last_key := to_key;
    END LOOP;
END $$;
