-- Values that programs share: written, changed only if nobody else has changed them, counted, listed, watched, deleted.
--   psql -X -f store.sql "$PGSCHED_DSN"
\set QUIET on
\set ON_ERROR_STOP on
\pset format unaligned
\pset fieldsep ' '
\pset tuples_only on

SELECT pgsched.kv_put('rates/EUR', '1.1') AS version \gset
SELECT 'read', value FROM pgsched.kv_get('rates/EUR');

-- Only if it still has the version that we have read. NULL: somebody was faster: read it again.
SELECT CASE WHEN pgsched.kv_put('rates/EUR', '1.12', expected => :version) IS NULL THEN 'too late' ELSE 'changed' END;
SELECT CASE WHEN pgsched.kv_put('rates/EUR', '1.13', expected => :version) IS NULL THEN 'too late' ELSE 'changed' END;

SELECT 'counted', pgsched.kv_add('rates/reads', 2);

SELECT 'listed', key, value FROM pgsched.kv_list('rates/');

-- What has changed since a version, in its order. Ask again with upto; skipped: read the keys anew, with kv_list.
SELECT 'change', key, value FROM pgsched.kv_changes('rates/', :version) WHERE key IS NOT NULL;

SELECT CASE WHEN pgsched.kv_delete('rates/EUR') IS NULL THEN 'no such key' ELSE 'deleted' END;
