DROP INDEX pgsched.jobs_done_once;
