-- What the audit records of locks: those that were broken, and who may use which names.
ALTER TABLE pgsched.audit DROP CONSTRAINT audit_what_check;
ALTER TABLE pgsched.audit ADD CONSTRAINT audit_what_check CHECK (what IN
    ('job', 'run', 'backfill', 'queue', 'limit', 'pause', 'retention', 'worker', 'alert', 'key', 'task', 'lock', 'names', 'database')) NOT VALID;
