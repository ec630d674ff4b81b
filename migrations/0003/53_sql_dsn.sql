-- An SQL job may name the database that its statements run on: args.dsn, a name that the operators of workers give.

CREATE FUNCTION pgsched.sql_args_error(args jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN jsonb_typeof(args) = 'array' AND args <> '[]' THEN 'args: a sql job takes a JSON object'
        WHEN args ? 'dsn' AND (jsonb_typeof(args -> 'dsn') <> 'string' OR args ->> 'dsn' !~ '^[a-z0-9_-]{1,63}$') THEN
            'args.dsn: expected the name of a database that workers know (--sql-dsn): lower-case letters, digits, - and _'
    END
$$;

CREATE OR REPLACE FUNCTION pgsched.args_error(kind text, args jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN args IS NULL THEN 'args: must not be null'
        WHEN jsonb_typeof(args) NOT IN ('object', 'array') THEN
            format('args: must be a JSON object or array, not a %s', jsonb_typeof(args))
        WHEN kind IN ('shell', 'http') AND jsonb_typeof(args) = 'array' AND args <> '[]' THEN
            format('args: a %s job takes a JSON object', kind)
        WHEN pg_column_size(args) > 1048576 THEN
            format('args: %s bytes, at most 1048576 are allowed', pg_column_size(args))
        WHEN kind = 'http' THEN pgsched.http_args_error(args)
        WHEN kind = 'sql' THEN pgsched.sql_args_error(args)
    END
$$;
