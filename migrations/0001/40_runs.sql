-- Runs made by any client wake the workers once per statement; a run for later is born scheduled.

CREATE FUNCTION pgsched.runs_born_later() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.state := 'scheduled';
    RETURN NEW;
END $$;

CREATE FUNCTION pgsched.runs_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.raise_bad_value(pgsched.args_error(NEW.kind, NEW.args), 'runs');
    RETURN NEW;
END $$;

CREATE FUNCTION pgsched.runs_notify() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('pgsched_runs', queue) FROM (SELECT DISTINCT queue FROM born WHERE state = 'queued') q;
    PERFORM pg_notify('pgsched_leader', 'runs') WHERE EXISTS (SELECT FROM born WHERE phase < 2);
    RETURN NULL;
END $$;

CREATE TRIGGER a_refuse BEFORE INSERT ON pgsched.runs FOR EACH ROW
    WHEN (pg_column_size(NEW.args) > 1048576 OR jsonb_typeof(NEW.args) NOT IN ('object', 'array'))
    EXECUTE FUNCTION pgsched.runs_refuse();
CREATE TRIGGER b_born_later BEFORE INSERT ON pgsched.runs FOR EACH ROW
    WHEN (NEW.state = 'queued' AND NEW.available_at > clock_timestamp())
    EXECUTE FUNCTION pgsched.runs_born_later();
CREATE TRIGGER c_notify AFTER INSERT ON pgsched.runs REFERENCING NEW TABLE AS born
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.runs_notify();

-- The state that a settled attempt leaves its run in: the one rule for workers and reaper alike.
CREATE FUNCTION pgsched.settled_state(outcome text, retry boolean, attempts_left boolean, cancel boolean)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN outcome = 'succeeded' THEN 'succeeded'
        WHEN outcome = 'cancelled' OR cancel THEN 'cancelled'
        WHEN outcome = 'interrupted' THEN 'queued'
        WHEN retry AND attempts_left THEN 'scheduled'
        ELSE 'dead' END
$$;
