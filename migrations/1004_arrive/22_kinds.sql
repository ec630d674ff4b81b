-- What each kind of job takes.

CREATE OR REPLACE FUNCTION pgsched.sql_args_error(args jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN jsonb_typeof(args) = 'array' AND args <> '[]' THEN 'args: a sql job takes a JSON object'
        WHEN args ? 'dsn' AND (jsonb_typeof(args -> 'dsn') <> 'string' OR args ->> 'dsn' !~ '^[a-z0-9_-]{1,63}$') THEN
            'args.dsn: expected the name of a database that workers know (--sql-dsn): lower-case letters, digits, - and _'
        WHEN EXISTS (SELECT FROM jsonb_object_keys(CASE jsonb_typeof(args) WHEN 'object' THEN args ELSE '{}' END) k
                     WHERE starts_with(k, 'pgsched_')) THEN
            (SELECT format('args.%s: names that begin with pgsched_ are set by pgsched itself', left(min(k), 60))
             FROM jsonb_object_keys(args) k WHERE starts_with(k, 'pgsched_'))
    END
$$;

-- What is wrong with the tokens such as {slot:%Y-%m-%d} in the task, and in the texts of the arguments, of a command, a shell
-- line or a request; null: nothing. A token has a %, and no $ before it: ${slot:-x} is the shell's.
-- pgsched/core/schedule/slot_text.py refuses the same tokens in the same words.
CREATE FUNCTION pgsched.slot_token_error(kind text, task text, args jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((array_agg(format(
            '%s: {slot:%s}: after %%, one of these is known: a A b B d f G H I j m M p S u U V w W y Y z Z %%', t.field, left(t.form, 60))
            ORDER BY t.given, t.place) FILTER (WHERE t.form !~ '^([^%]|%[aAbBdfGHIjmMpSuUVwWyYzZ%])*$'))[1],
        CASE WHEN count(*) > 1000 THEN 'args: more than 1,000 tokens that begin with {slot:' END)
    FROM (
        SELECT given.place AS given, given.field, m.token[1] AS form, m.place
        FROM (
            SELECT 0 AS place, 'task' AS field, task AS words
            UNION ALL
            SELECT s.place, 'args', s.value #>> '{}' FROM jsonb_path_query(
                CASE WHEN strpos(args::text, '{slot:') > 0 THEN args END, 'strict $.** ? (@.type() == "string")')
                WITH ORDINALITY s(value, place)
        ) given
        CROSS JOIN LATERAL regexp_matches(CASE WHEN strpos(given.words, '{slot:') > 0 THEN given.words ELSE '' END,
                                          '(?<![$])[{]slot:([^{}%]*%[^{}]*)[}]', 'g') WITH ORDINALITY m(token, place)
        WHERE kind IN ('command', 'shell', 'http')
    ) t
$$;

-- The name of a job; null: it is gone.
CREATE FUNCTION pgsched.name_of_job(id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT j.name FROM pgsched.jobs j WHERE j.id = name_of_job.id
$$;
