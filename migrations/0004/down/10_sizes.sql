DROP TRIGGER IF EXISTS a_check_size ON pgsched.runs;
ALTER TABLE pgsched.runs DROP CONSTRAINT IF EXISTS runs_texts_size;
ALTER TABLE pgsched.attempts DROP CONSTRAINT IF EXISTS attempts_texts_size;
ALTER TABLE pgsched.workers DROP CONSTRAINT IF EXISTS workers_texts_size;
ALTER TABLE pgsched.leader DROP CONSTRAINT IF EXISTS leader_texts_size;
ALTER TABLE pgsched.jobs DROP CONSTRAINT IF EXISTS jobs_texts_size;
ALTER TABLE pgsched.backfills DROP CONSTRAINT IF EXISTS backfills_texts_size;
