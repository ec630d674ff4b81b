-- phase was generated: PostgreSQL copies the whole row, twice, to compute such a column, and a run is written three times.
-- Now it is a column like another, which the hot statements write; a trigger sees to it that it is what the state says,
-- whoever wrote that.
ALTER TABLE pgsched.runs ALTER COLUMN phase DROP EXPRESSION;
ALTER TABLE pgsched.runs ALTER COLUMN phase SET DEFAULT 2;

-- A CHECK is asked before that trigger is: these go by the state.
ALTER TABLE pgsched.runs DROP CONSTRAINT runs_state, DROP CONSTRAINT runs_finished_when_ended,
    DROP CONSTRAINT runs_running_has_claim, DROP CONSTRAINT runs_texts_size;
ALTER TABLE pgsched.runs
    ADD CONSTRAINT runs_state CHECK (CASE state
        WHEN 'queued' THEN finished_at IS NULL
        WHEN 'running' THEN finished_at IS NULL AND token IS NOT NULL AND lease_until IS NOT NULL
        WHEN 'succeeded' THEN finished_at IS NOT NULL
        WHEN 'scheduled' THEN finished_at IS NULL
        WHEN 'waiting' THEN finished_at IS NULL
        ELSE finished_at IS NOT NULL AND state IN ('dead', 'cancelled', 'skipped', 'missed') END) NOT VALID,
    ADD CONSTRAINT runs_texts_size
        CHECK (coalesce(octet_length(error), 0) + coalesce(octet_length(reason), 0) <= 65536) NOT VALID;

CREATE FUNCTION pgsched.runs_mend_phase() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pgsched.runs SET phase = CASE NEW.state
        WHEN 'waiting' THEN 0 WHEN 'scheduled' THEN 1 WHEN 'queued' THEN 2 WHEN 'running' THEN 2
        WHEN 'dead' THEN 4 WHEN 'missed' THEN 4 ELSE 3 END
    WHERE id = NEW.id;
    RETURN NULL;
END $$;
CREATE TRIGGER a_mend_phase AFTER INSERT OR UPDATE ON pgsched.runs FOR EACH ROW
    WHEN (NEW.phase <> CASE NEW.state
        WHEN 'queued' THEN 2 WHEN 'running' THEN 2 WHEN 'succeeded' THEN 3 WHEN 'waiting' THEN 0 WHEN 'scheduled' THEN 1
        WHEN 'dead' THEN 4 WHEN 'missed' THEN 4 ELSE 3 END)
    EXECUTE FUNCTION pgsched.runs_mend_phase();
