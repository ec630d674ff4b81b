-- Checks of single values, which the checks of rows below are made of. Each returns what is wrong as "field: reason", or
-- null; raise_bad_value raises that with the field as COLUMN, so that a client in any language can tell which one it was.

CREATE FUNCTION pgsched.not_one_of(field text, value text, allowed text[]) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN value = ANY (allowed) THEN NULL
           WHEN value IS NULL THEN format('%s: must not be null', field)
           ELSE format('%s: "%s" is not one of %s', field, left(value, 60), array_to_string(allowed, ', ')) END
$$;

CREATE FUNCTION pgsched.out_of_range(field text, value numeric, low numeric, high numeric) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN value BETWEEN low AND high THEN NULL
           WHEN value IS NULL THEN format('%s: must not be null', field)
           ELSE format('%s: %s is out of range %s-%s', field, value, low, high) END
$$;

CREATE FUNCTION pgsched.bad_interval(field text, value interval, at_least interval) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN value IS NULL THEN NULL
        WHEN value < at_least THEN format('%s: %s is less than %s', field, value, at_least)
        WHEN value > interval '10 years' THEN format('%s: %s is more than 10 years', field, value)
    END
$$;

-- An interval that every job has.
CREATE FUNCTION pgsched.bad_period(field text, value interval) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN value IS NULL THEN format('%s: must not be null', field)
           ELSE pgsched.bad_interval(field, value, '0') END
$$;

CREATE FUNCTION pgsched.bad_codes(field text, codes integer[]) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN array_ndims(codes) > 1 THEN format('%s: must be a plain list', field)
        WHEN codes = '{}' THEN format('%s: must name at least one exit code', field)
        WHEN array_position(codes, NULL) IS NOT NULL THEN format('%s: must not hold null', field)
        WHEN NOT codes <@ ARRAY(SELECT generate_series(0, 255)) THEN
            format('%s: %s is out of range 0-255', field,
                   (SELECT code FROM unnest(codes) AS c(code) WHERE code NOT BETWEEN 0 AND 255 LIMIT 1))
    END
$$;

CREATE FUNCTION pgsched.bad_text(field text, value text, longest integer) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN value = '' OR value IS NULL THEN format('%s: must not be empty', field)
        WHEN length(value) > longest THEN
            format('%s: %s characters, at most %s are allowed', field, length(value), longest)
        WHEN value ~ '[\x01-\x1f\x7f]' THEN format('%s: must not contain control characters', field)
        WHEN value <> btrim(value) THEN format('%s: must not begin or end with a space', field)
    END
$$;

-- A text for people: any characters, not without end.
CREATE FUNCTION pgsched.bad_length(field text, value text, longest integer) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN length(value) > longest THEN
        format('%s: %s characters, at most %s are allowed', field, length(value), longest) END
$$;

CREATE FUNCTION pgsched.bad_tags(tags text[]) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN array_ndims(tags) > 1 THEN 'tags: must be a plain list'
        WHEN cardinality(tags) > 100 THEN format('tags: %s tags, at most 100 are allowed', cardinality(tags))
        WHEN array_position(tags, NULL) IS NOT NULL THEN 'tags: must not hold null'
        WHEN cardinality(tags) > 0 THEN (
            SELECT problem FROM unnest(tags) t(tag), pgsched.bad_text('tags', tag, 200) problem
            WHERE problem IS NOT NULL LIMIT 1)
    END
$$;

CREATE FUNCTION pgsched.bad_instant(field text, value timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN NOT isfinite(value) OR value NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'
           THEN format('%s: %s is not an instant between 1970 and 9000', field, value) END
$$;

CREATE FUNCTION pgsched.raise_bad_value(problem text, relation text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = problem,
        COLUMN = split_part(problem, ':', 1), TABLE = relation, SCHEMA = 'pgsched';
END $$;

CREATE FUNCTION pgsched.utc(moment timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
$$;
