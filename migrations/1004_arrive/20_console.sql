-- What the audit records of calendars that jobs share.
ALTER TABLE pgsched.audit DROP CONSTRAINT audit_what_check;
ALTER TABLE pgsched.audit ADD CONSTRAINT audit_what_check CHECK (what IN
    ('job', 'run', 'backfill', 'queue', 'limit', 'pause', 'retention', 'worker', 'alert', 'key', 'task', 'lock', 'names', 'database', 'calendar', 'file')) NOT VALID;
