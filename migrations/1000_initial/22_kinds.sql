-- What the kinds of work ask of task and args. HTTP: a wrong URL or argument is refused at INSERT or UPDATE, with the words
-- that the executor uses (pgsched/execute/http/request.py). SQL: args.dsn is a name that the operators of workers give.

CREATE FUNCTION pgsched.http_url_error(url text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    authority text := substring(url FROM '(?i)^https?://([^/?#]*)');
    port text := substring(authority FROM ':([0-9]{1,5})$');
BEGIN
    RETURN CASE
        WHEN length(url) > 8192 THEN
            format('task: %s characters, at most 8192 are allowed in a URL', length(url))
        WHEN url ~ '[\x01-\x20\x7f]' THEN 'task: a URL must not contain spaces or control characters'
        WHEN authority IS NULL THEN 'task: a URL must begin with http:// or https://'
        WHEN strpos(authority, '@') > 0 THEN
            'task: a URL must not contain a user name or password; args.headers may hold Authorization'
        WHEN authority !~ '^(\[[0-9A-Fa-f:.]+\]|[^]:\\%<>"''`{|}^[]+)(:[0-9]{1,5})?$' THEN
            'task: the URL has no valid host'
        WHEN port::integer NOT BETWEEN 1 AND 65535 THEN format('task: port %s is out of range 1-65535', port)
    END;
END $$;

CREATE FUNCTION pgsched.http_header_error(name text, value jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN name !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]{1,100}$' THEN
            format('args.headers: %s is not the name of a header', to_json(left(name, 60)))
        WHEN lower(name) IN ('accept-encoding', 'connection', 'content-length', 'expect', 'host', 'idempotency-key',
                             'keep-alive', 'te', 'trailer', 'transfer-encoding', 'upgrade')
             OR lower(name) ~ '^(x-pgsched-|proxy-)' THEN format('args.headers: %s is set by pgsched itself', name)
        WHEN jsonb_typeof(value) <> 'string' THEN format('args.headers.%s: expected text', name)
        WHEN length(value #>> '{}') > 8192 THEN
            format('args.headers.%s: %s characters, at most 8192 are allowed', name, length(value #>> '{}'))
        WHEN value #>> '{}' !~ '^[\x20-\x7e]*$' OR value #>> '{}' <> btrim(value #>> '{}') THEN
            format('args.headers.%s: must be printable ASCII and not begin or end with a space', name)
    END
$$;

-- What is wrong with the value of one key, as the end of a sentence that begins with "args." and the key.
CREATE FUNCTION pgsched.http_value_error(key text, value jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kind text := jsonb_typeof(value);
    most integer := CASE key WHEN 'connect_timeout_s' THEN 600 WHEN 'read_timeout_s' THEN 86400 END;
    plain text := value #>> '{}';
BEGIN
    IF key = 'method' AND (kind <> 'string' OR plain !~ '^[A-Za-z]{1,20}$' OR upper(plain) IN ('CONNECT', 'TRACE')) THEN
        RETURN ': expected a method such as POST';
    ELSIF key = 'headers' AND kind <> 'object' THEN
        RETURN ': expected an object of text';
    ELSIF key = 'params' AND kind <> 'object' THEN
        RETURN ': expected an object';
    ELSIF key = 'params' THEN
        RETURN (SELECT format('.%s: expected text, a number, true or false, or an array of these', p.name)
                FROM jsonb_each(value) p(name, item), jsonb_array_elements(
                    CASE jsonb_typeof(item) WHEN 'array' THEN item ELSE jsonb_build_array(item) END) one
                WHERE jsonb_typeof(one) NOT IN ('string', 'number', 'boolean') LIMIT 1);
    ELSIF key = 'body' AND kind <> 'string' THEN
        RETURN ': expected text';
    ELSIF key = 'expect' AND (kind <> 'array' OR value = '[]') THEN
        RETURN ': expected an array of statuses';
    ELSIF key = 'expect' THEN
        RETURN (SELECT format(': %s is neither a status 200-599 nor a class such as "2xx"', left(e.item::text, 60))
                FROM jsonb_array_elements(value) e(item)
                WHERE NOT (jsonb_typeof(item) = 'number' AND item::text ~ '^[2-5][0-9][0-9]$'
                           OR jsonb_typeof(item) = 'string' AND item #>> '{}' ~ '^[2-5]xx$') LIMIT 1);
    ELSIF key = 'follow_redirects' AND kind <> 'boolean' THEN
        RETURN ': expected true or false';
    ELSIF most IS NOT NULL THEN
        IF kind <> 'number' OR plain::numeric NOT BETWEEN 0.001 AND most THEN
            RETURN format(': expected a number of seconds, 0.001-%s', most);
        END IF;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION pgsched.http_args_error(args jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known text[] := ARRAY['method', 'headers', 'params', 'json', 'body', 'expect', 'connect_timeout_s',
                          'read_timeout_s', 'follow_redirects'];
    found record;
    problem text;
BEGIN
    IF args = '[]' THEN
        RETURN NULL;
    ELSIF jsonb_typeof(args) <> 'object' THEN
        RETURN 'args: a http job takes a JSON object';
    END IF;
    FOR found IN SELECT * FROM jsonb_each(args) LOOP
        IF found.key <> ALL (known) THEN
            RETURN format('args.%s: no such key; known are %s', left(found.key, 60), array_to_string(known, ', '));
        END IF;
        problem := pgsched.http_value_error(found.key, found.value);
        IF problem IS NOT NULL THEN
            RETURN 'args.' || found.key || problem;
        END IF;
    END LOOP;
    IF args ? 'headers' THEN
        SELECT e INTO problem FROM jsonb_each(args -> 'headers') h, pgsched.http_header_error(h.key, h.value) e
        WHERE e IS NOT NULL LIMIT 1;
    END IF;
    RETURN coalesce(problem, CASE WHEN args ?& '{json,body}' THEN 'args.body: not together with json' END);
END $$;

CREATE FUNCTION pgsched.sql_args_error(args jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN jsonb_typeof(args) = 'array' AND args <> '[]' THEN 'args: a sql job takes a JSON object'
        WHEN args ? 'dsn' AND (jsonb_typeof(args -> 'dsn') <> 'string' OR args ->> 'dsn' !~ '^[a-z0-9_-]{1,63}$') THEN
            'args.dsn: expected the name of a database that workers know (--sql-dsn): lower-case letters, digits, - and _'
    END
$$;

CREATE FUNCTION pgsched.args_error(kind text, args jsonb) RETURNS text
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
