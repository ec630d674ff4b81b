-- doctor_objects: indexes that are not usable and triggers that do not fire.
-- params: none
-- returns: (what: index or trigger, name, of: its table, text: what is wrong)
-- locks: none
SELECT 'index' AS what, c.relname::text AS name, t.relname::text AS of,
    CASE WHEN i.indisready THEN 'is invalid' ELSE 'is not ready' END AS text
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
WHERE t.relnamespace = 'pgsched'::regnamespace AND NOT (i.indisvalid AND i.indisready)
UNION ALL
SELECT 'trigger', g.tgname::text, t.relname::text, 'is disabled'
FROM pg_trigger g JOIN pg_class t ON t.oid = g.tgrelid
WHERE t.relnamespace = 'pgsched'::regnamespace AND g.tgenabled IN ('D', 'R')
ORDER BY 1, 2
