-- Excluded dates come by plain INSERT as well: a single date needs no until_date, a bad row is refused with its field,
-- and a change is heard of at once. Dates mean something in the job's zone only, and that is for the leader to say.

CREATE FUNCTION pgsched.calendar_error(c pgsched.job_calendars) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN c.from_date IS NULL THEN 'from_date: must not be null'
        WHEN c.from_date NOT BETWEEN '1970-01-01' AND '8999-12-31' THEN
            format('from_date: %s is not a date between 1970 and 9000', c.from_date)
        WHEN c.until_date NOT BETWEEN '1970-01-01' AND '8999-12-31' THEN
            format('until_date: %s is not a date between 1970 and 9000', c.until_date)
        WHEN c.until_date < c.from_date THEN
            format('until_date: %s is earlier than from_date, %s', c.until_date, c.from_date)
        WHEN c.reason IS NOT NULL THEN pgsched.bad_text('reason', c.reason, 200) END
$$;

CREATE FUNCTION pgsched.job_calendars_before() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text;
BEGIN
    NEW.until_date := coalesce(NEW.until_date, NEW.from_date);
    problem := pgsched.calendar_error(NEW);
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'job_calendars');
    END IF;
    RETURN NEW;
END $$;

-- Excluded dates put off the slots of @after, so its jobs are planned anew; other slots stay where they are, and whether
-- one is excluded is asked when it is due.
CREATE FUNCTION pgsched.job_calendars_after() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pgsched.jobs SET next_run_at = clock_timestamp()
    WHERE id IN (OLD.job_id, NEW.job_id) AND schedule IS NOT NULL AND next_run_at > clock_timestamp();
    PERFORM pg_notify('pgsched_leader', 'jobs');
    RETURN NULL;
END $$;

CREATE TRIGGER a_complete BEFORE INSERT OR UPDATE ON pgsched.job_calendars
    FOR EACH ROW EXECUTE FUNCTION pgsched.job_calendars_before();
CREATE TRIGGER b_plan_again AFTER INSERT OR UPDATE OR DELETE ON pgsched.job_calendars
    FOR EACH ROW EXECUTE FUNCTION pgsched.job_calendars_after();
