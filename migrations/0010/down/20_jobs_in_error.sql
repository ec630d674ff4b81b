DROP INDEX IF EXISTS pgsched.jobs_in_error;
