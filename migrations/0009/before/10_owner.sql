-- Whose a kept key is: of the role that took it, as a run is of the role that made it. Null, as for runs, where there are
-- no roles: where there are some, this default is what sql/roles.sql sets, so that what is taken from now on has its owner.
ALTER TABLE pgsched.kept_keys ADD COLUMN IF NOT EXISTS owner name;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_policies WHERE schemaname = 'pgsched' AND policyname = 'pgsched_all') THEN
        ALTER TABLE pgsched.kept_keys ALTER COLUMN owner SET DEFAULT pgsched.caller();
    END IF;
END $$;
