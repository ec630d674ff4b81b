-- How much a row may hold, whoever writes it. Bytes, and far above what pgsched itself writes: a bound against what would
-- fill the disk or stop whoever reads it. Old rows are looked at later, without a lock that anybody minds (validate.sql).

-- The first lines are all that most runs are asked: a claim or a settlement writes none of these.
ALTER TABLE pgsched.runs ADD CONSTRAINT runs_texts_size CHECK (
    (error IS NULL AND reason IS NULL AND cancel_reason IS NULL AND progress IS NULL AND options IS NULL AND tags IS NULL
        AND unique_key IS NULL)
    OR (coalesce(octet_length(error), 0) <= 65536 AND coalesce(octet_length(reason), 0) <= 65536
        AND coalesce(octet_length(cancel_reason), 0) <= 65536 AND coalesce(pg_column_size(progress), 0) <= 65536
        AND coalesce(pg_column_size(options), 0) <= 65536 AND coalesce(pg_column_size(tags), 0) <= 65536
        AND coalesce(octet_length(unique_key), 0) <= 4000)) NOT VALID;
ALTER TABLE pgsched.attempts ADD CONSTRAINT attempts_texts_size CHECK (
    coalesce(octet_length(error), 0) <= 65536 AND coalesce(octet_length(traceback), 0) <= 262144
    AND coalesce(octet_length(log_tail), 0) <= 262144 AND coalesce(octet_length(worker), 0) <= 1024) NOT VALID;
ALTER TABLE pgsched.workers ADD CONSTRAINT workers_texts_size CHECK (
    octet_length(name) <= 1024 AND octet_length(hostname) <= 1024 AND octet_length(version) <= 1024
    AND coalesce(octet_length(app), 0) <= 1024 AND coalesce(octet_length(blocked_by), 0) <= 65536
    AND coalesce(octet_length(drain_asked_by), 0) <= 1024
    AND pg_column_size(tasks) <= 16777216 AND coalesce(pg_column_size(queues), 0) <= 1048576) NOT VALID;
ALTER TABLE pgsched.leader ADD CONSTRAINT leader_texts_size CHECK (
    octet_length(holder) <= 1024 AND octet_length(hostname) <= 1024) NOT VALID;
ALTER TABLE pgsched.jobs ADD CONSTRAINT jobs_texts_size CHECK (
    coalesce(octet_length(error), 0) <= 65536 AND coalesce(octet_length(description), 0) <= 65536
    AND coalesce(octet_length(paused_reason), 0) <= 65536 AND coalesce(pg_column_size(tags), 0) <= 65536) NOT VALID;
ALTER TABLE pgsched.backfills ADD CONSTRAINT backfills_texts_size CHECK (
    coalesce(octet_length(error), 0) <= 65536 AND coalesce(octet_length(cancelled_by), 0) <= 65536) NOT VALID;

