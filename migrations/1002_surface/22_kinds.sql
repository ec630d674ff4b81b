-- Arguments are measured as they are sent: a stored value may be compressed, to a hundredth of that. `||` with an empty
-- value of the same kind returns them as they are, unpacked.
CREATE OR REPLACE FUNCTION pgsched.args_error(kind text, args jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN args IS NULL THEN 'args: must not be null'
        WHEN jsonb_typeof(args) NOT IN ('object', 'array') THEN
            format('args: must be a JSON object or array, not a %s', jsonb_typeof(args))
        WHEN kind IN ('shell', 'http') AND jsonb_typeof(args) = 'array' AND args <> '[]' THEN
            format('args: a %s job takes a JSON object', kind)
        WHEN pg_column_size(args || CASE jsonb_typeof(args) WHEN 'array' THEN '[]' ELSE '{}' END::jsonb) > 1048576 THEN
            format('args: %s bytes, at most 1048576 are allowed',
                pg_column_size(args || CASE jsonb_typeof(args) WHEN 'array' THEN '[]' ELSE '{}' END::jsonb))
        WHEN jsonb_path_exists(args, 'strict $.**{201}') THEN 'args: nested more than 200 deep'
        WHEN kind = 'http' THEN pgsched.http_args_error(args)
        WHEN kind = 'sql' THEN pgsched.sql_args_error(args)
        WHEN kind IN ('command', 'shell') THEN pgsched.command_args_error(kind, args)
    END
$$;
