-- doctor_objects: indexes that are not usable, triggers that do not fire and row policies that nobody asks.
-- params: none
-- returns: (what: index, trigger or policy, name, of: its table, text: what is wrong)
-- locks: none
SELECT 'index' AS what, c.relname::text AS name, t.relname::text AS of,
    CASE WHEN i.indisready THEN 'is invalid' ELSE 'is not ready' END AS text
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
WHERE t.relnamespace = 'pgsched'::regnamespace AND NOT (i.indisvalid AND i.indisready)
UNION ALL
SELECT 'trigger', g.tgname::text, t.relname::text, 'is disabled'
FROM pg_trigger g JOIN pg_class t ON t.oid = g.tgrelid
WHERE t.relnamespace = 'pgsched'::regnamespace AND g.tgenabled IN ('D', 'R')
UNION ALL
SELECT 'policy', min(p.polname)::text, t.relname::text, 'is not asked: row level security is off'
FROM pg_policy p JOIN pg_class t ON t.oid = p.polrelid
WHERE t.relnamespace = 'pgsched'::regnamespace AND NOT t.relrowsecurity GROUP BY t.relname
ORDER BY 1, 2
