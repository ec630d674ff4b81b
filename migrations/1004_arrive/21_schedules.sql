-- The schedule grammar of pgsched/core/schedule/grammar.py, word for word: the same texts are accepted, and the rest is
-- refused with the same words. Only "never fires" is left to the program. Change both or neither.

CREATE OR REPLACE FUNCTION pgsched.schedule_item_error(field text, item text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reason text;
BEGIN
    IF field = 'day of month' AND item ~* '^lw?$' THEN
        RETURN NULL;
    ELSIF field = 'day of month' AND item ~* '^([0-9]+w|w[0-9]+)$' THEN
        RETURN pgsched.schedule_value_error(field, btrim(item, 'wW'));
    ELSIF field = 'day of week' AND item ~* '^[0-9a-z]+#' THEN
        reason := pgsched.schedule_value_error(field, split_part(item, '#', 1));
        IF reason IS NULL AND item !~ '^[^#]+#0*[1-5]$' THEN
            reason := format('%s: "%s" needs a number from 1 to 5 after #', field, item);
        END IF;
        RETURN reason;
    ELSIF field = 'day of week' AND item ~* '^l[0-9]+$' THEN
        RETURN pgsched.schedule_value_error(field, substr(item, 2));
    ELSIF field = 'day of week' AND item ~* '^([0-9]+|[a-z]{3})l$' THEN
        RETURN pgsched.schedule_value_error(field, left(item, -1));
    END IF;
    RETURN pgsched.schedule_numbers_error(field, item);
END $$;

-- What is wrong with one expression, as "field: reason"; NULL when nothing is.
CREATE FUNCTION pgsched.schedule_part_error(expression text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    words text[] := regexp_split_to_array(btrim(expression, E' \t'), '[ \t]+');
    fields text[] := ARRAY['second', 'minute', 'hour', 'day of month', 'month', 'day of week'];
    reason text;
BEGIN
    IF words[1] LIKE '@%' THEN
        RETURN pgsched.schedule_macro_error(words);
    ELSIF words[1] ~* '^(cron_)?tz=' THEN
        RETURN format('schedule: "%s" is not supported, set timezone instead', words[1]);
    ELSIF words[1] = '' OR cardinality(words) NOT IN (5, 6) THEN
        RETURN format('schedule: expected 5 or 6 fields, got %s', cardinality(array_remove(words, '')));
    END IF;
    FOR i IN 1 .. cardinality(words) LOOP
        reason := pgsched.schedule_field_error(fields[6 - cardinality(words) + i], words[i]);
        EXIT WHEN reason IS NOT NULL;
    END LOOP;
    RETURN reason;
END $$;

-- What is wrong with a schedule, as "field: reason", without a hint; NULL when nothing is.
CREATE FUNCTION pgsched.schedule_refusal(expression text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    most constant integer := 20;
    parts text[];
    part text;
    first_word text;
    reason text;
BEGIN
    IF length(expression) > 512 THEN
        RETURN 'schedule: longer than 512 characters';
    ELSIF expression COLLATE "C" !~ '^[\x20-\x7e\t]*$' THEN
        RETURN 'schedule: only printable ASCII is accepted';
    ELSIF strpos(expression, ';') = 0 THEN
        RETURN pgsched.schedule_part_error(expression);
    END IF;
    parts := string_to_array(expression, ';');
    IF cardinality(parts) > most THEN
        RETURN format('schedule: %s expressions, at most %s are allowed', cardinality(parts), most);
    END IF;
    FOREACH part IN ARRAY parts LOOP
        part := btrim(part, E' \t');
        first_word := lower(substring(part FROM '^[^ \t]*') COLLATE "C");
        IF part = '' THEN
            RETURN 'schedule: an expression beside ";" is empty';
        ELSIF first_word IN ('@every', '@after') THEN
            RETURN format('schedule: %s stands alone, without ";"', first_word);
        END IF;
        reason := pgsched.schedule_part_error(part);
        IF reason IS NOT NULL THEN
            RETURN format('%s (in "%s")', reason, part);
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- What is wrong with a schedule, as "field: reason", with a hint where one can be guessed; NULL when nothing is.
CREATE OR REPLACE FUNCTION pgsched.schedule_error(expression text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reason text := pgsched.schedule_refusal(expression);
BEGIN
    RETURN CASE WHEN reason IS NOT NULL THEN reason || pgsched.schedule_hint(expression) END;
END $$;

-- What is wrong with a time zone, as "field: reason"; NULL when it is an IANA name in its exact spelling. It is asked for each
-- job that is written: names of the list are found without splitting it, and without a subtransaction.
CREATE OR REPLACE FUNCTION pgsched.timezone_error(zone text) RETURNS text
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    region text := CASE WHEN strpos(zone, '/') > 0 THEN split_part(zone, '/', 1) ELSE '' END;
    place text := CASE WHEN region = '' THEN zone ELSE substr(zone, length(region) + 2) END;
    refused text := format('timezone: "%s" is not a known IANA zone', left(zone, 64));
BEGIN
    IF zone COLLATE "C" !~ '^[\x20-\x7e]*$' THEN
        RETURN 'timezone: only printable ASCII is accepted';
    ELSIF place <> '' AND strpos(place, ' ') = 0
        AND strpos(' ' || translate(pgsched.listed_timezones(region), E'\n', ' ') || ' ', ' ' || place || ' ') > 0 THEN
        RETURN NULL;
    -- A zone newer than the list has a region; anything without one is an abbreviation or a POSIX zone string.
    ELSIF length(zone) > 64 OR zone COLLATE "C" !~ '^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)+$' THEN
        RETURN refused || pgsched.similar_zones(zone);
    END IF;
    BEGIN
        -- Knows no case and takes POSIX strings, but is quick: the scan below is left to names that pass it.
        PERFORM now() AT TIME ZONE zone;
        IF EXISTS (SELECT FROM pg_timezone_names AS known WHERE known.name = zone) THEN
            RETURN NULL;
        END IF;
    EXCEPTION WHEN invalid_parameter_value THEN
        NULL;
    END;
    RETURN refused || pgsched.similar_zones(zone);
END $$;
