-- The schedule that a refused text was to be: pgsched/core/schedule/hints.py gives the same hints in the same words.
-- Change both or neither.

-- The unit that a word names, in small letters; null for any other word.
CREATE FUNCTION pgsched.hinted_unit(word text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN word = ANY ('{s,sec,secs,second,seconds}') THEN 'second'
        WHEN word = ANY ('{m,min,mins,minute,minutes}') THEN 'minute'
        WHEN word = ANY ('{h,hr,hrs,hour,hours,hourly}') THEN 'hour'
        WHEN word = ANY ('{d,day,days,daily,everyday}') THEN 'day'
        WHEN word = ANY ('{week,weeks,weekly}') THEN 'week'
        WHEN word = ANY ('{month,months,monthly}') THEN 'month'
    END
$$;

-- The days of the week that a word names, as cron writes them; null for any other word.
CREATE FUNCTION pgsched.hinted_days(word text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN word = ANY ('{weekday,weekdays}') THEN '1-5'
        WHEN word = ANY ('{weekend,weekends}') THEN '0,6'
        WHEN word = 'tues' THEN '2'
        WHEN word = 'thurs' THEN '4'
        ELSE (SELECT (d.n - 1)::text FROM unnest('{sunday,monday,tuesday,wednesday,thursday,friday,saturday}'::text[])
              WITH ORDINALITY d(name, n) WHERE word IN (d.name, d.name || 's', left(d.name, 3)))
    END
$$;

-- The schedule for every `count` days, hours, minutes or seconds.
CREATE FUNCTION pgsched.hinted_interval(unit text, count integer) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN unit = 'minute' AND count = 1 THEN '* * * * *'
        WHEN unit = 'hour' AND count = 1 THEN '0 * * * *'
        WHEN unit = 'minute' AND 60 % nullif(count, 0) = 0 AND count < 60 THEN format('*/%s * * * *', count)
        WHEN unit = 'hour' AND 24 % nullif(count, 0) = 0 AND count < 24 THEN format('0 */%s * * *', count)
        ELSE format('@every %s%s', count, left(unit, 1))
    END
$$;

-- The schedule that English words mean; null where that is not clear.
CREATE FUNCTION pgsched.hinted_schedule(words text[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    word text;
    part text[];
    number integer;  -- may be an hour, or the count of the next unit
    hour integer;
    minute integer;
    half text;
    hours integer[] := '{}';
    minutes integer[] := '{}';
    unit text;
    count integer;
    days text[] := '{}';
    dates text[] := '{}';
    clock text;
BEGIN
    -- the last word is none: it takes the number that is left over
    FOR word IN SELECT lower(w.typed COLLATE "C") FROM (
                    SELECT u.typed, u.n FROM unnest(words) WITH ORDINALITY u(typed, n) UNION ALL SELECT '', NULL) w
                ORDER BY w.n NULLS LAST LOOP
        half := NULL;
        hour := NULL;
        CONTINUE WHEN word = ANY ('{a,an,and,at,each,every,in,of,on,o''clock,run,runs,the}');
        IF pgsched.hinted_unit(word) IS NOT NULL THEN
            CONTINUE WHEN cardinality(dates) > 0 AND pgsched.hinted_unit(word) = 'day' AND number IS NULL;
            IF unit IS NOT NULL OR number = 0 THEN
                RETURN NULL;
            END IF;
            unit := pgsched.hinted_unit(word);
            count := number;
            number := NULL;
            CONTINUE;
        END IF;
        IF number IS NOT NULL THEN
            hour := number;
            minute := 0;
            number := NULL;
            IF word IN ('am', 'pm') THEN
                half := word;
            ELSIF hour > 23 THEN
                RETURN NULL;
            ELSE
                hours := hours || hour;
                minutes := minutes || 0;
                hour := NULL;
            END IF;
        END IF;
        IF half IS NOT NULL OR word = '' THEN
            NULL;
        ELSIF pgsched.hinted_days(word) IS NOT NULL THEN
            days := days || pgsched.hinted_days(word);
        ELSIF word IN ('noon', 'midnight') THEN
            hour := CASE word WHEN 'noon' THEN 12 ELSE 0 END;
            minute := 0;
        ELSIF word IN ('first', 'last') THEN
            dates := dates || CASE word WHEN 'first' THEN '1' ELSE 'L' END;
        ELSIF word ~ '^[0-9]{1,2}(st|nd|rd|th)$' THEN
            dates := dates || left(word, -2)::integer::text;
            IF left(word, -2)::integer NOT BETWEEN 1 AND 31 THEN
                RETURN NULL;
            END IF;
        ELSIF word ~ '^[0-9]{1,3}$' THEN
            number := word;
        ELSE
            part := regexp_match(word, '^([0-9]{1,2})(:([0-9]{2}))?(am|pm)?$');
            IF part IS NULL THEN
                RETURN NULL;
            END IF;
            hour := part[1];
            minute := coalesce(part[3], '0');
            half := part[4];
        END IF;
        IF half IS NOT NULL THEN
            IF hour NOT BETWEEN 1 AND 12 THEN
                RETURN NULL;
            END IF;
            hour := hour % 12 + CASE half WHEN 'pm' THEN 12 ELSE 0 END;
        END IF;
        IF hour IS NOT NULL THEN
            IF hour > 23 OR minute > 59 THEN
                RETURN NULL;
            END IF;
            hours := hours || hour;
            minutes := minutes || minute;
        END IF;
    END LOOP;
    IF (SELECT count(DISTINCT m) FROM unnest(minutes) m) > 1 THEN
        RETURN NULL;
    END IF;
    clock := CASE WHEN cardinality(hours) = 0 THEN '0 0' ELSE format('%s %s', minutes[1],
        (SELECT string_agg(h::text, ',' ORDER BY h) FROM (SELECT DISTINCT h FROM unnest(hours) h) d)) END;
    IF cardinality(dates) > 0 OR unit = 'month' THEN
        RETURN CASE WHEN cardinality(days) = 0 AND count IS NULL AND coalesce(unit, 'month') = 'month'
            THEN format('%s %s * *', clock, coalesce(nullif(array_to_string(dates, ','), ''), '1')) END;
    ELSIF cardinality(days) > 0 OR unit = 'week' THEN
        RETURN CASE WHEN count IS NULL AND coalesce(unit, 'week') = 'week'
            THEN format('%s * * %s', clock, coalesce(nullif(array_to_string(days, ','), ''), '0')) END;
    ELSIF unit IS NULL OR unit = 'day' AND coalesce(count, 1) = 1 THEN
        RETURN CASE WHEN cardinality(hours) > 0 OR unit IS NOT NULL THEN clock || ' * * *' END;
    END IF;
    RETURN CASE WHEN cardinality(hours) = 0 THEN pgsched.hinted_interval(unit, coalesce(count, 1)) END;
END $$;

-- The end of the message about a refused schedule; empty where nothing can be guessed.
CREATE FUNCTION pgsched.schedule_hint(expression text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    is_zone constant text := '^([A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z][A-Za-z0-9_+-]+)+|utc|gmt|UTC|GMT)$';
    words text[];
    zone text;
    rest text;
    meant text;
BEGIN
    IF length(expression) > 512 OR expression COLLATE "C" !~ '^[\x20-\x7e\t]*$' THEN
        RETURN '';
    END IF;
    words := regexp_split_to_array(btrim(expression, E' \t,'), '[ \t,]+');
    IF words[cardinality(words)] ~ is_zone THEN
        zone := words[cardinality(words)];
        words := words[:cardinality(words) - 1];
    END IF;
    IF cardinality(words) = 0 OR zone IS NOT NULL AND words[cardinality(words)] ~ is_zone THEN
        RETURN '';
    ELSIF zone IS NOT NULL THEN
        rest := btrim(left(rtrim(expression, E' \t,'), -length(zone)), E' \t');
        meant := CASE WHEN pgsched.schedule_refusal(rest) IS NULL THEN regexp_replace(rest, '[ \t]+', ' ', 'g') END;
    END IF;
    meant := coalesce(meant, pgsched.hinted_schedule(words));
    RETURN CASE WHEN meant IS NULL THEN ''
        WHEN zone IS NULL THEN format('; did you mean %s?', meant)
        ELSE format('; did you mean %s with timezone %s?', meant, CASE WHEN length(zone) = 3 THEN upper(zone) ELSE zone END) END;
END $$;
