-- The leader reads the instants of all open backfills at once: one that it cannot read would hold up the others.
CREATE FUNCTION pgsched.backfills_refuse_instants() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.raise_bad_value(coalesce(pgsched.bad_instant('from_at', NEW.from_at),
        pgsched.bad_instant('to_at', NEW.to_at),
        format('anchor_at: %s is not an instant between 1900 and 9000', NEW.anchor_at)), 'backfills');
    RETURN NULL;
END $$;
CREATE TRIGGER a_check_instants AFTER INSERT OR UPDATE OF from_at, to_at, anchor_at ON pgsched.backfills
    FOR EACH ROW WHEN (NEW.from_at NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'
        OR NEW.to_at NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'
        OR NEW.anchor_at NOT BETWEEN '1900-01-01 00:00Z' AND '9000-01-01 00:00Z')
    EXECUTE FUNCTION pgsched.backfills_refuse_instants();

-- Those that an earlier release took.
UPDATE pgsched.backfills SET finished_at = clock_timestamp(), error = 'from_at, to_at or anchor_at is no instant that there is'
WHERE finished_at IS NULL AND (from_at NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'
    OR to_at NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'
    OR anchor_at NOT BETWEEN '1900-01-01 00:00Z' AND '9000-01-01 00:00Z');
