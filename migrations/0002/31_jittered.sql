-- Under `replace` and `terminate` a slot ends the one before it. Where jitter may move a start behind the next slot, that
-- one has not started: such a job would hardly ever run. Only @every says its interval, so only that can be refused here.

-- Whole seconds; NULL for any schedule that is not @every.
CREATE FUNCTION pgsched.every_interval(schedule text) RETURNS interval
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT make_interval(secs => coalesce(p[1], '0')::float8 * 86400 + coalesce(p[2], '0')::float8 * 3600
                                 + coalesce(p[3], '0')::float8 * 60 + coalesce(p[4], '0')::float8)
    FROM regexp_match(schedule,
        '^[ \t]*@every[ \t]+(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?[ \t]*$', 'i') AS p
    WHERE p IS NOT NULL
$$;

CREATE FUNCTION pgsched.jobs_refuse_unstarted() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.jitter > pgsched.every_interval(NEW.schedule) THEN
        PERFORM pgsched.raise_bad_value(format(
            'jitter: %s is longer than the interval of the schedule: under overlap "%s" a slot would end the one before '
            'it, which has not started', NEW.jitter, NEW.overlap), 'jobs');
    END IF;
    RETURN NULL;
END $$;

-- Not for any other edit: a job that the release before took can still be paused. AFTER: what is wrong by itself is
-- said first.
CREATE TRIGGER e_refuse_unstarted AFTER INSERT OR UPDATE OF schedule, jitter, overlap ON pgsched.jobs FOR EACH ROW
    WHEN (NEW.jitter > '0' AND NEW.overlap IN ('replace', 'terminate'))
    EXECUTE FUNCTION pgsched.jobs_refuse_unstarted();
