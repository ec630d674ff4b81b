CREATE OR REPLACE FUNCTION pgsched.jobs_notify() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.notify('pgsched_leader', 'jobs');
    RETURN NULL;
END $$;

-- The high-water mark only rises, whoever writes it: a restored old row or a clock that stepped back must not
-- make a slot fire twice. pgsched.reset_mark alone lowers it, and no further than to now and to the newest slot that has a
-- row.
CREATE OR REPLACE FUNCTION pgsched.jobs_high_water_mark() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(current_setting('pgsched.lowers_mark', true), '') <> 'on' THEN
        NEW.decided_until := OLD.decided_until;
    ELSE
        NEW.decided_until := least(OLD.decided_until,
            greatest(NEW.decided_until, clock_timestamp(), pgsched.newest_slot(NEW.id)));
    END IF;
    RETURN NEW;
END $$;
