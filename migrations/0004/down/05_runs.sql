CREATE OR REPLACE TRIGGER a_check_insert BEFORE INSERT ON pgsched.runs
    FOR EACH ROW EXECUTE FUNCTION pgsched.runs_before_insert();
DROP TRIGGER IF EXISTS a_check_instants ON pgsched.runs;
ALTER TABLE pgsched.runs DROP COLUMN IF EXISTS checked, DROP CONSTRAINT IF EXISTS runs_state;
ALTER TABLE pgsched.runs
    ADD CONSTRAINT runs_state CHECK (state IN ('waiting', 'scheduled', 'queued', 'running',
        'succeeded', 'dead', 'cancelled', 'skipped', 'missed')) NOT VALID,
    ADD CONSTRAINT runs_slot_has_job CHECK ((job_id IS NULL) = (scheduled_at IS NULL)) NOT VALID,
    ADD CONSTRAINT runs_instants CHECK (available_at BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'
        AND (expires_at IS NULL OR expires_at BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z')) NOT VALID;
