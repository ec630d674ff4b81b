-- Who listens is told in the transaction that opens or closes the incident. Whoever may connect may listen: all but the
-- number is for those who may read the table.
CREATE OR REPLACE FUNCTION pgsched.alerts_notify() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.notify('pgsched_alerts', jsonb_build_object('id', NEW.id,
        'event', CASE WHEN NEW.closed_at IS NULL THEN 'opened' ELSE 'closed' END)::text);
    RETURN NULL;
END $$;
