-- check_grants: what the session's role may not do although a worker, or a leader, has to.
-- params: none
-- returns: missing text, one row for each missing grant, by importance
-- locks: none
SELECT format('USAGE on schema %%s', 'pgsched') AS missing WHERE NOT has_schema_privilege('pgsched', 'USAGE')
UNION ALL
SELECT format('%%s on table pgsched.%%s', privilege, relname)
FROM pg_class, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS privilege
WHERE relnamespace = 'pgsched'::regnamespace AND relkind = 'r' AND relname <> 'alembic_version'
  AND NOT has_table_privilege(oid, privilege)
UNION ALL
SELECT 'SELECT on table pgsched.alembic_version' FROM pg_class
WHERE relnamespace = 'pgsched'::regnamespace AND relname = 'alembic_version' AND NOT has_table_privilege(oid, 'SELECT')
UNION ALL
SELECT format('EXECUTE on function pgsched.%%s', proname) FROM pg_proc
WHERE pronamespace = 'pgsched'::regnamespace AND NOT has_function_privilege(oid, 'EXECUTE')
