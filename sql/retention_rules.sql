-- retention_rules: all lengths of time that runs are kept for, and what else is set.
-- params: none
-- returns: (keeps_s float8[]: each once, the shortest first; version text: another one when any setting has changed;
--          archive boolean; now timestamptz; counted_until text: of what ended later no row may go yet, see rollup.sql)
-- locks: none
WITH said AS (
    SELECT '' AS whose, keep FROM pgsched.retention
    UNION ALL SELECT 'queue ' || name, keep FROM pgsched.queues WHERE keep IS NOT NULL
    UNION ALL SELECT 'job ' || id, keep FROM pgsched.jobs WHERE keep IS NOT NULL
)
SELECT ARRAY(SELECT DISTINCT extract(epoch FROM k.value::interval)::float8 AS s FROM said, jsonb_each_text(said.keep) k
             UNION SELECT extract(epoch FROM interval '7 days')::float8 ORDER BY s) AS keeps_s,
    (SELECT md5(string_agg(whose || said.keep::text, ',' ORDER BY whose)) FROM said) AS version,
    coalesce((SELECT archive FROM pgsched.retention), false) AS archive,
    clock_timestamp() AS now, (SELECT counted_until::text FROM pgsched.rollup_mark) AS counted_until
