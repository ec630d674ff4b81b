-- A key that has met another run (a unique key was in the way) is not in that run's row: the pruner finds it by the run.
-- One that has expired and is taken over stands for no run yet.
CREATE FUNCTION pgsched.kept_keys_met() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.met := CASE WHEN NEW.run_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM pgsched.runs r WHERE r.id = NEW.run_id AND r.idempotency_key = NEW.key) THEN true END;
    RETURN NEW;
END $$;
CREATE TRIGGER a_met BEFORE UPDATE OF run_id ON pgsched.kept_keys
    FOR EACH ROW WHEN (NEW.scope = 'idempotency') EXECUTE FUNCTION pgsched.kept_keys_met();
