DROP TABLE IF EXISTS pgsched.archived_runs, pgsched.retention;
DELETE FROM pgsched.audit WHERE what = 'retention';
ALTER TABLE pgsched.audit DROP CONSTRAINT IF EXISTS audit_what_check,
    ADD CONSTRAINT audit_what_check CHECK (what IN ('job', 'run', 'backfill', 'queue', 'limit', 'pause')) NOT VALID;
DROP TRIGGER IF EXISTS a_refuse_keep ON pgsched.jobs;
DROP TRIGGER IF EXISTS a_refuse_keep ON pgsched.queues;
CREATE OR REPLACE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE OF name, concurrency_limit, rate, rate_period, rate_burst,
    max_depth, on_full, fair, ageing ON pgsched.queues FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('queue');
ALTER TABLE pgsched.jobs DROP COLUMN IF EXISTS keep;
ALTER TABLE pgsched.queues DROP COLUMN IF EXISTS keep;
