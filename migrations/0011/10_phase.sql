-- phase was generated: to compute such a column PostgreSQL copies the row twice, each time that it is written, and a run
-- is written three times. Now it is a column like any other: what is written often writes it too, and two triggers see to
-- it that it is what the state says, whoever wrote that (figures: bench/NOTES.md, "What the server and a worker do less").
ALTER TABLE pgsched.runs ALTER COLUMN phase DROP EXPRESSION;
ALTER TABLE pgsched.runs ALTER COLUMN phase SET DEFAULT 2;

-- CHECKs are asked before the second of them is: they go by the state. One, because each is read again for each statement.
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

-- No search_path is set, because it is to be inlined; see pgsched.runs_before_insert.
CREATE FUNCTION pgsched.phase_of(state text) RETURNS smallint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE state WHEN 'waiting' THEN 0 WHEN 'scheduled' THEN 1 WHEN 'queued' THEN 2 WHEN 'running' THEN 2
        WHEN 'dead' THEN 4 WHEN 'missed' THEN 4 ELSE 3 END::smallint
$$;

CREATE FUNCTION pgsched.runs_born_in_phase() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.phase := pgsched.phase_of(NEW.state);
    RETURN NEW;
END $$;
-- Triggers fire in the order of their names: behind somebody's own that chooses the state.
CREATE TRIGGER z_phase BEFORE INSERT ON pgsched.runs FOR EACH ROW
    WHEN (NEW.state <> 'queued' OR NEW.phase <> 2) EXECUTE FUNCTION pgsched.runs_born_in_phase();

-- After and not before an UPDATE: a trigger before it would have every row looked up and locked once more.
CREATE FUNCTION pgsched.runs_mend_phase() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pgsched.runs SET phase = pgsched.phase_of(NEW.state) WHERE id = NEW.id;
    RETURN NULL;
END $$;
CREATE TRIGGER z_phase_after AFTER UPDATE ON pgsched.runs FOR EACH ROW
    WHEN (NEW.phase <> CASE NEW.state WHEN 'running' THEN 2 WHEN 'succeeded' THEN 3 WHEN 'queued' THEN 2
        WHEN 'waiting' THEN 0 WHEN 'scheduled' THEN 1 WHEN 'dead' THEN 4 WHEN 'missed' THEN 4 ELSE 3 END)
    EXECUTE FUNCTION pgsched.runs_mend_phase();

-- Also for who replays rows (session_replication_role = replica), whose other triggers stand still.
ALTER TABLE pgsched.runs ENABLE ALWAYS TRIGGER z_phase;
ALTER TABLE pgsched.runs ENABLE ALWAYS TRIGGER z_phase_after;
