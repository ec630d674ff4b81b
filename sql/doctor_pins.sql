-- doctor_pins: what keeps vacuum from taking dead rows away, the oldest first: sessions of this database, prepared
-- transactions, replication slots and standbys that report what they read.
-- params: older_s float8: sessions whose snapshot or transaction is older
-- returns: (what: session, prepared, slot, standby; pid, who, application, state, age_s: null where it is unknown,
--          age_xids, query: its beginning)
-- locks: none
SELECT * FROM (
    SELECT 'session' AS what, pid, usename::text AS who, application_name AS application, state,
        extract(epoch FROM clock_timestamp() - coalesce(xact_start, query_start))::float8 AS age_s,
        greatest(age(backend_xmin), age(backend_xid)) AS age_xids, left(query, 200) AS query
    FROM pg_stat_activity
    WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
      AND coalesce(xact_start, query_start) < clock_timestamp() - make_interval(secs => %(older_s)s)
      AND backend_type <> 'walsender' AND (datname = current_database() OR datname IS NULL)
    UNION ALL
    SELECT 'prepared', NULL, owner::text, gid, NULL, extract(epoch FROM clock_timestamp() - prepared)::float8,
        age(transaction), NULL
    FROM pg_prepared_xacts
    WHERE database = current_database() AND prepared < clock_timestamp() - make_interval(secs => %(older_s)s)
    UNION ALL
    SELECT 'slot', active_pid, NULL, slot_name::text, CASE WHEN active THEN 'active' ELSE 'inactive' END, NULL,
        greatest(age(xmin), age(catalog_xmin)), NULL
    FROM pg_replication_slots WHERE age(xmin) > 100000 OR NOT active AND xmin IS NOT NULL
    UNION ALL
    SELECT 'standby', pid, usename::text, application_name, state, NULL, age(backend_xmin), NULL
    FROM pg_stat_replication WHERE age(backend_xmin) > 100000
) p
ORDER BY age_xids DESC NULLS LAST LIMIT 5
