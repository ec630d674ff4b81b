-- Where there are roles: their rights on kept keys as they were, because whoever enqueues writes them himself again.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_policies WHERE schemaname = 'pgsched' AND policyname = 'pgsched_all') THEN
        DROP POLICY IF EXISTS pgsched_own ON pgsched.kept_keys;
        CREATE POLICY pgsched_see ON pgsched.kept_keys FOR SELECT TO pgsched_producer USING (true);
        CREATE POLICY pgsched_take ON pgsched.kept_keys FOR INSERT TO pgsched_producer WITH CHECK (run_id IS NULL);
        CREATE POLICY pgsched_use ON pgsched.kept_keys FOR UPDATE TO pgsched_producer
            USING (run_id IS NULL OR expires_at <= clock_timestamp()) WITH CHECK (true);
        CREATE POLICY pgsched_give_back ON pgsched.kept_keys FOR DELETE TO pgsched_producer USING (run_id IS NULL);
        GRANT INSERT (scope, key, task, expires_at), UPDATE, DELETE ON pgsched.kept_keys
            TO pgsched_producer, pgsched_operator;
        ALTER FUNCTION pgsched.take_key(text, text, text, timestamptz) SECURITY INVOKER;
        ALTER FUNCTION pgsched.refuse_untaken_key() SECURITY INVOKER;
    END IF;
END $$;
ALTER TABLE pgsched.kept_keys DROP COLUMN IF EXISTS owner;
