DROP TRIGGER IF EXISTS a_check_instants ON pgsched.backfills;
