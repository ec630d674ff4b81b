-- What is wrong with a time zone, as "field: reason"; NULL when it is an IANA name in its exact spelling.
CREATE OR REPLACE FUNCTION pgsched.timezone_error(zone text) RETURNS text
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    region text := CASE WHEN strpos(zone, '/') > 0 THEN split_part(zone, '/', 1) ELSE '' END;
    place text := CASE WHEN region = '' THEN zone ELSE substr(zone, length(region) + 2) END;
    refused text := format('timezone: "%s" is not a known IANA zone', left(zone, 64));
BEGIN
    IF zone COLLATE "C" !~ '^[\x20-\x7e]*$' THEN
        RETURN 'timezone: only printable ASCII is accepted';
    ELSIF place = ANY (regexp_split_to_array(btrim(pgsched.listed_timezones(region), E' \n'), '\s+')) THEN
        RETURN NULL;
    -- A zone newer than the list has a region; anything without one is an abbreviation or a POSIX zone string.
    ELSIF length(zone) > 64 OR zone COLLATE "C" !~ '^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)+$' THEN
        RETURN refused || pgsched.similar_zones(zone);
    END IF;
    -- Knows no case and takes POSIX strings, but is quick: the scan below is left to names that pass it.
    PERFORM now() AT TIME ZONE zone;
    IF EXISTS (SELECT FROM pg_timezone_names AS known WHERE known.name = zone) THEN
        RETURN NULL;
    END IF;
    RETURN refused || pgsched.similar_zones(zone);
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN refused || pgsched.similar_zones(zone);
END $$;
