ALTER TABLE pgsched.workers DROP COLUMN IF EXISTS pooler;
