-- What an attempt prints, in chunks. A chunk names the claim that wrote it: an attempt that was interrupted is followed
-- by one of the same number, and neither may write over the other. 'cut' says how much is left out at its place.
ALTER TABLE pgsched.run_logs ADD COLUMN token uuid;
ALTER TABLE pgsched.run_logs DROP CONSTRAINT run_logs_stream;
ALTER TABLE pgsched.run_logs
    ADD CONSTRAINT run_logs_stream CHECK (stream IN ('stdout', 'stderr', 'log', 'cut')) NOT VALID;
