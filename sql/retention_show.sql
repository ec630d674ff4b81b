-- retention_show: how long things are kept.
-- params: none
-- returns: one row: keep, archive, keep_minutes, keep_hours, keep_audit, jobs and queues: json of [{name, keep}] with their own
--          settings, counted_until timestamptz (null: nothing is counted yet)
-- locks: none
SELECT r.keep, r.archive, r.keep_minutes, r.keep_hours, r.keep_audit,
    (SELECT coalesce(json_agg(json_build_object('name', q.name, 'keep', q.keep) ORDER BY q.name), '[]')
     FROM pgsched.queues q WHERE q.keep IS NOT NULL) AS queues,
    (SELECT coalesce(json_agg(json_build_object('name', j.name, 'keep', j.keep) ORDER BY j.name), '[]')
     FROM pgsched.jobs j WHERE j.keep IS NOT NULL) AS jobs,
    (SELECT nullif(counted_until, '-infinity') FROM pgsched.rollup_mark) AS counted_until
FROM pgsched.retention r
