DROP INDEX IF EXISTS pgsched.jobs_declared;
