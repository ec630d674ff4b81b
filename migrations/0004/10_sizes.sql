-- How much a row may hold, whoever writes it. Bytes, and far above what pgsched itself writes: a bound against what would
-- fill the disk or stop whoever reads it. Old rows are looked at later, without a lock that anybody minds (validate.sql).

-- One short CHECK for what settlements write: each statement about runs reads its text again (05_runs.sql).
ALTER TABLE pgsched.runs ADD CONSTRAINT runs_texts_size CHECK (octet_length(concat(error, reason)) <= 65536) NOT VALID;
-- The rest when it is written: here, and in runs_before_insert.
CREATE FUNCTION pgsched.run_size_error(unique_key text, tags text[], options jsonb, progress jsonb, cancel_reason text)
RETURNS text LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s: %s bytes, at most %s are allowed', name, size, most) FROM (VALUES
        ('unique_key', octet_length(unique_key), 4000), ('tags', pg_column_size(tags), 65536),
        ('options', pg_column_size(options), 65536), ('progress', pg_column_size(progress), 65536),
        ('cancel_reason', octet_length(cancel_reason), 65536)) AS v(name, size, most)
    WHERE size > most LIMIT 1
$$;
CREATE FUNCTION pgsched.runs_refuse_size() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := pgsched.run_size_error(NEW.unique_key, NEW.tags, NEW.options, NEW.progress, NEW.cancel_reason);
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER a_check_size AFTER UPDATE OF unique_key, tags, options, progress, cancel_reason ON pgsched.runs
    FOR EACH ROW WHEN (octet_length(concat(NEW.unique_key, NEW.tags, NEW.options, NEW.progress, NEW.cancel_reason)) > 4000)
    EXECUTE FUNCTION pgsched.runs_refuse_size();

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
-- What people write into jobs is bounded when they do (job_error): a job that an earlier release took must go on.
ALTER TABLE pgsched.jobs ADD CONSTRAINT jobs_texts_size CHECK (coalesce(octet_length(error), 0) <= 65536) NOT VALID;
ALTER TABLE pgsched.backfills ADD CONSTRAINT backfills_texts_size CHECK (
    coalesce(octet_length(error), 0) <= 65536 AND coalesce(octet_length(cancelled_by), 0) <= 65536) NOT VALID;

