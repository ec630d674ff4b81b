-- The CHECKs that revisions add to tables with rows: looked at without a lock that anybody minds. One that old rows break
-- stays, and holds for new ones.
DO $$
DECLARE
    checked record;
BEGIN
    FOR checked IN
        SELECT n.conname, c.relname FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid
        WHERE n.connamespace = 'pgsched'::regnamespace AND NOT n.convalidated ORDER BY 2, 1
    LOOP
        BEGIN
            EXECUTE format('ALTER TABLE pgsched.%I VALIDATE CONSTRAINT %I', checked.relname, checked.conname);
        EXCEPTION WHEN check_violation THEN
            RAISE WARNING '% of % holds for new rows only: rows from before break it', checked.conname, checked.relname;
        END;
        COMMIT;
    END LOOP;
END $$;
