-- Calendars that jobs share: their rows, what a change of them does, and what readers of slots see of them. What the times
-- mean, pgsched/core/schedule/calendar.py says: excluded_at has the same rules and the same words. Change both or neither.

CREATE FUNCTION pgsched.shared_calendar_error(c pgsched.calendars) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(pgsched.bad_text('name', c.name, 200), pgsched.bad_length('description', c.description, 65536),
        pgsched.bad_owner(c.owner))
$$;

-- What is wrong with a time of a calendar, as "field: reason"; NULL when nothing is.
CREATE FUNCTION pgsched.calendar_time_error(t pgsched.calendar_times) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN t.calendar IS NULL THEN 'calendar: must not be null'
        WHEN t.from_date IS NULL AND t.until_date IS NOT NULL THEN 'from_date: must not be null beside until_date'
        WHEN t.from_date NOT BETWEEN '1970-01-01' AND '8999-12-31' THEN
            format('from_date: %s is not a date between 1970 and 9000', t.from_date)
        WHEN t.until_date NOT BETWEEN '1970-01-01' AND '8999-12-31' THEN
            format('until_date: %s is not a date between 1970 and 9000', t.until_date)
        WHEN t.until_date < t.from_date THEN
            format('until_date: %s is earlier than from_date, %s', t.until_date, t.from_date)
        WHEN array_ndims(t.weekdays) > 1 THEN 'weekdays: must be a plain list'
        WHEN t.weekdays = '{}' OR NOT t.weekdays <@ '{0,1,2,3,4,5,6}' OR array_position(t.weekdays, NULL) IS NOT NULL THEN
            'weekdays: expected numbers from 0 (Sunday) to 6'
        WHEN cardinality(t.weekdays) > 7 THEN 'weekdays: at most 7'
        WHEN (t.from_time IS NULL) <> (t.until_time IS NULL) THEN 'from_time: from_time and until_time belong together'
        WHEN t.until_time <= t.from_time THEN
            format('until_time: %s is not later than from_time, %s', t.until_time, t.from_time)
        WHEN t.from_date IS NULL AND t.weekdays IS NULL AND t.from_time IS NULL THEN
            'from_date: expected dates, weekdays or times of the day'
        WHEN t.reason IS NOT NULL THEN pgsched.bad_text('reason', t.reason, 200) END
$$;

CREATE FUNCTION pgsched.calendars_before() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    judged pgsched.calendars := NEW;
    problem text;
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.created_at := clock_timestamp();
        NEW.version := gen_random_uuid();
        NEW.replan := false;
    ELSE
        NEW.created_at := OLD.created_at;
        IF NEW.owner = OLD.owner THEN
            judged.owner := pgsched.caller();  -- an owner that stays is not judged again
        END IF;
    END IF;
    problem := pgsched.shared_calendar_error(judged);
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'calendars');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_check BEFORE INSERT OR UPDATE OF name, description, owner, created_at ON pgsched.calendars
    FOR EACH ROW EXECUTE FUNCTION pgsched.calendars_before();

CREATE FUNCTION pgsched.calendar_times_before() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text;
BEGIN
    IF NEW.from_date IS NOT NULL THEN
        NEW.until_date := coalesce(NEW.until_date, NEW.from_date);
    END IF;
    problem := coalesce(pgsched.calendar_time_error(NEW), CASE
        WHEN TG_OP = 'UPDATE' AND NEW.calendar IS DISTINCT FROM OLD.calendar
            AND EXISTS (SELECT FROM pgsched.calendars c WHERE c.name = OLD.calendar) THEN
            'calendar: a time stays in its calendar' END);
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'calendar_times');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_complete BEFORE INSERT OR UPDATE ON pgsched.calendar_times
    FOR EACH ROW EXECUTE FUNCTION pgsched.calendar_times_before();

-- The leader reads the times of a calendar whenever it decides a slot of one of its jobs, and those that repeat for each
-- day. There are not more of them than that allows. Counted behind calendar_times_changed, which has locked the calendar:
-- so two transactions cannot both have room for their times.
CREATE FUNCTION pgsched.calendar_times_most() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most constant integer := 5000;
    most_repeated constant integer := 100;
BEGIN
    IF EXISTS (SELECT FROM (SELECT DISTINCT calendar FROM added) a WHERE (SELECT count(*) FROM (
            SELECT FROM pgsched.calendar_times t WHERE t.calendar = a.calendar LIMIT most + 1) found) > most) THEN
        PERFORM pgsched.raise_bad_value(format('calendar: a calendar has at most %s times', most), 'calendar_times');
    ELSIF EXISTS (SELECT FROM (SELECT DISTINCT calendar FROM added) a WHERE (SELECT count(*) FROM (
            SELECT FROM pgsched.calendar_times t WHERE t.calendar = a.calendar
                AND (t.weekdays IS NOT NULL OR t.from_time IS NOT NULL)
                AND coalesce(t.until_date - t.from_date > 31, true) LIMIT most_repeated + 1) found) > most_repeated) THEN
        PERFORM pgsched.raise_bad_value(format('calendar: at most %s times of a calendar may repeat: have weekdays or hours,'
            ' and no dates, or dates more than 31 days apart', most_repeated), 'calendar_times');
    ELSIF EXISTS (SELECT FROM (SELECT DISTINCT calendar FROM added WHERE from_time IS NOT NULL) a WHERE most_repeated < (
            SELECT max(o.n) FROM (
                SELECT sum(e.step) OVER (ORDER BY e.day, e.step) AS n
                FROM pgsched.calendar_times t CROSS JOIN LATERAL (VALUES (t.from_date, 1), (t.until_date + 1, -1)) e(day, step)
                WHERE t.calendar = a.calendar AND t.from_time IS NOT NULL AND t.until_date - t.from_date <= 31) o)) THEN
        PERFORM pgsched.raise_bad_value(format('calendar: at most %s times with hours may fall on one date',
            most_repeated), 'calendar_times');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER d_most AFTER INSERT ON pgsched.calendar_times REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.calendar_times_most();
CREATE TRIGGER d_most_update AFTER UPDATE ON pgsched.calendar_times REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.calendar_times_most();

-- Changed times may shift slots to where the leader does not expect them: it plans the jobs of the calendar again
-- (pgsched/leader/duties/calendars.py). The jobs themselves are not written here: they may belong to others, and would be
-- locked until the transaction of this change ends.
CREATE FUNCTION pgsched.calendar_times_changed() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pgsched.calendars c SET version = gen_random_uuid(), replan = true
    WHERE c.name IN (SELECT m.calendar FROM moved m);
    PERFORM pgsched.notify('pgsched_leader', 'calendars');
    RETURN NULL;
END $$;
CREATE TRIGGER c_changed_insert AFTER INSERT ON pgsched.calendar_times REFERENCING NEW TABLE AS moved
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.calendar_times_changed();
CREATE TRIGGER c_changed_update AFTER UPDATE ON pgsched.calendar_times REFERENCING NEW TABLE AS moved
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.calendar_times_changed();
CREATE TRIGGER c_changed_delete AFTER DELETE ON pgsched.calendar_times REFERENCING OLD TABLE AS moved
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.calendar_times_changed();

-- One entry for each calendar and statement, with some of the times: an import brings hundreds of them.
CREATE FUNCTION pgsched.audit_calendar_times() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.note('changed', 'calendar', m.calendar, jsonb_build_object(
        CASE TG_OP WHEN 'INSERT' THEN 'added' WHEN 'DELETE' THEN 'removed' ELSE 'changed' END, m.n, 'times', m.some))
    FROM (
        SELECT o.calendar, max(o.n) AS n, jsonb_agg(o.words ORDER BY o.place) FILTER (WHERE o.place <= 20) AS some FROM (
            SELECT t.calendar, pgsched.describe_times(t) AS words, count(*) OVER (PARTITION BY t.calendar) AS n,
                row_number() OVER (PARTITION BY t.calendar ORDER BY t.id) AS place FROM moved t) o
        GROUP BY o.calendar) m
    -- not where the calendar itself was deleted, which is noted as such
    WHERE EXISTS (SELECT FROM pgsched.calendars c WHERE c.name = m.calendar);
    RETURN NULL;
END $$;
CREATE TRIGGER f_audit_insert AFTER INSERT ON pgsched.calendar_times REFERENCING NEW TABLE AS moved
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_calendar_times();
CREATE TRIGGER f_audit_update AFTER UPDATE ON pgsched.calendar_times REFERENCING NEW TABLE AS moved
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_calendar_times();
CREATE TRIGGER f_audit_delete AFTER DELETE ON pgsched.calendar_times REFERENCING OLD TABLE AS moved
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_calendar_times();
CREATE TRIGGER f_audit AFTER INSERT OR UPDATE OF name, description, owner OR DELETE ON pgsched.calendars
    FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('calendar');

-- Deletes a calendar with its times. Returns its name; NULL when the caller has no such calendar.
CREATE FUNCTION pgsched.delete_calendar(calendar text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    users text := (SELECT string_agg(u.name, ', ' ORDER BY u.name) FROM (
        SELECT j.name FROM pgsched.jobs j WHERE j.calendar = delete_calendar.calendar AND pgsched.may_change(j.owner) LIMIT 5) u);
    used boolean := EXISTS (SELECT FROM pgsched.jobs j WHERE j.calendar = delete_calendar.calendar);
    found text;
BEGIN
    PERFORM pgsched.refuse_others(format('calendar "%s"', c.name), c.owner) FROM pgsched.calendars c
    WHERE c.name = delete_calendar.calendar;
    IF used THEN
        PERFORM pgsched.raise_bad_value(format('calendar: jobs use it%s', coalesce(': ' || users, '')), 'calendars');
    END IF;
    DELETE FROM pgsched.calendars c WHERE c.name = delete_calendar.calendar AND pgsched.may_change(c.owner)
    RETURNING c.name INTO found;
    RETURN found;
END $$;

-- Removes times of a calendar. Returns how many; NULL when the caller has no such calendar.
CREATE FUNCTION pgsched.remove_calendar_times(calendar text, ids bigint[]) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n bigint;
BEGIN
    PERFORM pgsched.refuse_others(format('calendar "%s"', c.name), c.owner) FROM pgsched.calendars c
    WHERE c.name = remove_calendar_times.calendar;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    DELETE FROM pgsched.calendar_times t WHERE t.calendar = remove_calendar_times.calendar AND t.id = ANY (ids);
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;

-- Why nothing runs at a time of a calendar: "excluded by calendar holidays: 2026-12-25 (Christmas)".
CREATE FUNCTION pgsched.describe_times(t pgsched.calendar_times) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('excluded by calendar %s: ', t.calendar) || concat_ws(' ',
        CASE WHEN t.from_date = t.until_date THEN to_char(t.from_date, 'YYYY-MM-DD')
             ELSE to_char(t.from_date, 'YYYY-MM-DD') || ' to ' || to_char(t.until_date, 'YYYY-MM-DD') END,
        (SELECT string_agg((ARRAY['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'])[d.day + 1], ', ' ORDER BY d.day)
         FROM (SELECT DISTINCT day FROM unnest(t.weekdays) w(day)) d),
        regexp_replace(t.from_time::text, ':00$', '') || '-' || regexp_replace(t.until_time::text, ':00$', ''))
        || coalesce(' (' || nullif(t.reason, '') || ')', '')
$$;

-- Why nothing runs at an instant of a job, given as the wall clock of its zone; null where something may.
CREATE FUNCTION pgsched.excluded_at(j pgsched.jobs, wall timestamp) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(pgsched.excluded_date(j.id, wall::date), CASE WHEN j.calendar IS NOT NULL THEN (
            SELECT pgsched.describe_times(t) FROM pgsched.calendar_times t
            WHERE t.calendar = j.calendar AND (t.from_date IS NULL OR wall::date BETWEEN t.from_date AND t.until_date)
                AND (t.weekdays IS NULL OR extract(dow FROM wall)::integer = ANY (t.weekdays))
                AND (t.from_time IS NULL OR wall::time >= t.from_time AND wall::time < t.until_time)
            -- whole days first, by their beginning; then the others
            ORDER BY t.from_date IS NULL OR t.weekdays IS NOT NULL OR t.from_time IS NOT NULL,
                CASE WHEN t.weekdays IS NULL AND t.from_time IS NULL THEN t.from_date END,
                CASE WHEN t.weekdays IS NULL AND t.from_time IS NULL THEN t.until_date END, t.id LIMIT 1)
        END) || CASE WHEN j.on_excluded = 'skip' THEN '' ELSE '; no time within 31 days is allowed' END
$$;

-- By which excluded times the slots of a job are shifted, as a text that changes with them; null: by none.
CREATE FUNCTION pgsched.excluded_mark(j pgsched.jobs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN j.on_excluded <> 'skip' OR j.shifts IS NOT NULL THEN concat_ws(' ', j.on_excluded, j.calendar,
        (SELECT c.version FROM pgsched.calendars c WHERE c.name = j.calendar),
        (SELECT md5(string_agg(to_char(d.from_date, 'J') || '-' || to_char(d.until_date, 'J'), ',' ORDER BY d.from_date))
         FROM pgsched.job_calendars d WHERE d.job_id = j.id)) END
$$;

-- Whether a job without further slots may get one: its end lies ahead, and a calendar may have shifted its last slots to
-- behind it.
CREATE FUNCTION pgsched.may_go_on(j pgsched.jobs) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(j.next_run_at IS NULL AND j.error IS NULL AND j.schedule IS NOT NULL AND j.ends_at > clock_timestamp()
        AND (j.on_excluded <> 'skip' OR j.shifts IS NOT NULL) AND (j.max_runs IS NULL OR j.run_count < j.max_runs), false)
$$;

-- The undecided slots of a job that are known: those that the leader keeps, up to the job's end; or run_at of a job that
-- runs once. `excluded`: why the slot will be skipped, an excluded time or the mode shadow; null where it will not. `nominal`: where the schedule has it, if a
-- calendar has shifted it.
DROP FUNCTION pgsched.known_slots(pgsched.jobs);
CREATE FUNCTION pgsched.known_slots(j pgsched.jobs)
RETURNS TABLE (slot timestamptz, east interval, excluded text, nominal timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.slot, s.east, coalesce(CASE WHEN j.calendar IS NULL AND j.on_excluded = 'skip'
            THEN pgsched.excluded_date(j.id, ((s.slot AT TIME ZONE 'UTC') + s.east)::date)
            ELSE pgsched.excluded_at(j, (s.slot AT TIME ZONE 'UTC') + s.east) END,
        CASE WHEN j.mode = 'shadow' THEN 'shadow' END), s.nominal
    FROM (
        SELECT u.slot, make_interval(secs => u.seconds) AS east, u.nominal
        FROM pgsched.next_slots k CROSS JOIN LATERAL unnest(k.slots, k.offsets, k.nominals) u(slot, seconds, nominal)
        WHERE k.job_id = j.id AND (k.schedule, k.timezone, k.anchor_at) = (j.schedule, j.timezone, j.anchor_at)
            AND (k.excluded IS NULL AND j.on_excluded = 'skip' AND j.shifts IS NULL OR k.excluded = pgsched.excluded_mark(j))
        UNION ALL
        SELECT r.at, pgsched.east_of_utc(r.at, j.timezone), CASE WHEN r.at <> j.run_at THEN j.run_at END
        -- one that is shifted is where the leader has planned it
        FROM (SELECT CASE WHEN j.on_excluded = 'skip' THEN j.run_at ELSE j.next_run_at END AS at) r
        WHERE j.schedule IS NULL AND j.run_at IS NOT NULL AND j.next_run_at IS NOT NULL
    ) s
    WHERE s.slot > j.decided_until AND (j.starts_at IS NULL OR s.slot >= j.starts_at)
        AND (j.ends_at IS NULL OR s.slot <= j.ends_at) AND isfinite(s.slot)
    ORDER BY s.slot
$$;
