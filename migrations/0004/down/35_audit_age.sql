DROP FUNCTION IF EXISTS pgsched.prune_audit(integer);
ALTER TABLE IF EXISTS pgsched.retention DROP COLUMN IF EXISTS keep_audit;
