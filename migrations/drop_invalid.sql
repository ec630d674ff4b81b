-- Removes what a build of the index `pgsched.index` (a setting) has left that was cut off: IF NOT EXISTS would take it for
-- the index.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_index
               WHERE indexrelid = to_regclass(format('pgsched.%I', current_setting('pgsched.index'))) AND NOT indisvalid)
    THEN
        EXECUTE format('DROP INDEX pgsched.%I', current_setting('pgsched.index'));
    END IF;
END $$;
