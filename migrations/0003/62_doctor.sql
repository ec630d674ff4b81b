-- What `pgsched doctor` compares between hosts: how far a worker's clock was ahead of the database's when it started (a
-- round trip makes it at most that much less), and which tz database it computes schedules with.
ALTER TABLE pgsched.workers ADD COLUMN clock_ahead_s double precision, ADD COLUMN tz_version text;
