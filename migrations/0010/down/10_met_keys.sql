DROP TRIGGER IF EXISTS a_met ON pgsched.kept_keys;
DROP INDEX IF EXISTS pgsched.kept_keys_met;
ALTER TABLE pgsched.kept_keys DROP COLUMN IF EXISTS met;
