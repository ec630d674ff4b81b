ALTER TABLE pgsched.workers DROP CONSTRAINT IF EXISTS workers_declares_size;
ALTER TABLE pgsched.workers DROP COLUMN IF EXISTS declares;
