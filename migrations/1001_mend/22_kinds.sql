-- What is wrong with the arguments of a command (an array of strings, or an object) or of a command line (an object). The
-- executors read them by the same rule.
CREATE FUNCTION pgsched.command_args_error(kind text, args jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known text[] := CASE kind WHEN 'command' THEN '{argv,env,cwd,stdin}' ELSE '{env,cwd,stdin}' END;
    given jsonb := CASE WHEN jsonb_typeof(args) = 'array' AND kind = 'command' THEN jsonb_build_object('argv', args)
                        WHEN args = '[]' THEN '{}' ELSE args END;
    found record;
    one record;
    type text;
BEGIN
    FOR found IN SELECT * FROM jsonb_each(given) LOOP
        type := jsonb_typeof(found.value);
        IF found.key <> ALL (known) THEN
            RETURN format('args.%s: no such key; known are %s', left(found.key, 60), array_to_string(known, ', '));
        ELSIF found.key = 'argv' THEN
            IF type <> 'array' THEN
                RETURN format('args.argv: expected an array of strings, got %s', type);
            END IF;
            FOR one IN SELECT ordinality - 1 AS n, jsonb_typeof(value) AS type
                       FROM jsonb_array_elements(found.value) WITH ORDINALITY WHERE jsonb_typeof(value) <> 'string' LIMIT 1 LOOP
                RETURN format('args.argv[%s]: expected a string, got %s', one.n, one.type);
            END LOOP;
        ELSIF found.key = 'env' THEN
            IF type <> 'object' THEN
                RETURN format('args.env: expected an object of strings, got %s', type);
            END IF;
            FOR one IN SELECT key, jsonb_typeof(value) AS type FROM jsonb_each(found.value)
                       WHERE jsonb_typeof(value) <> 'string' OR key = '' OR strpos(key, '=') > 0
                          OR starts_with(key, 'PGSCHED_') LIMIT 1 LOOP
                RETURN 'args.env: ' || CASE
                    WHEN one.type <> 'string' THEN format('%s: expected a string, got %s', left(one.key, 60), one.type)
                    WHEN starts_with(one.key, 'PGSCHED_') THEN left(one.key, 60) || ' is set by pgsched itself'
                    ELSE format('"%s" is not the name of a variable', left(one.key, 60)) END;
            END LOOP;
        ELSIF type NOT IN ('string', 'null') THEN
            RETURN format('args.%s: expected a string, got %s', found.key, type);
        ELSIF found.key = 'cwd' AND found.value = '""' THEN
            RETURN 'args.cwd: must not be empty';
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

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
        WHEN jsonb_path_exists(args, 'strict $.**{201}') THEN 'args: nested more than 200 deep'
        WHEN kind = 'http' THEN pgsched.http_args_error(args)
        WHEN kind = 'sql' THEN pgsched.sql_args_error(args)
        WHEN kind IN ('command', 'shell') THEN pgsched.command_args_error(kind, args)
    END
$$;
