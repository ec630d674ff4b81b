-- A row as it is kept: without nulls and what the database keeps itself; of a long value its beginning and its size.
CREATE OR REPLACE FUNCTION pgsched.audited(r jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(e.key, CASE WHEN octet_length(e.value::text) <= 2000 THEN e.value
        ELSE to_jsonb(format('%s... (%s bytes, md5 %s)', left(e.value::text, 500), octet_length(e.value::text),
                             md5(e.value::text))) END), '{}')
    FROM jsonb_each(r - '{id,created_at,updated_at,anchor_at,decided_until,next_run_at,run_count,error,error_at,paused_at,applied_at,limited,shifts,version,replan}'::text[]) e
    WHERE e.value <> 'null'
$$;
