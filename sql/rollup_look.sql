-- rollup_look: is there anything to count, and who may yet commit what ended by now?
-- params: none
-- returns: (now timestamptz; writers text[]: the transactions that are writing runs, asked behind the clock: who begins to
--          write later ends its runs later; some boolean: runs have ended behind the mark)
-- locks: none
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT now, ARRAY(
        SELECT l.virtualtransaction FROM pg_catalog.pg_locks l
        WHERE clock.now IS NOT NULL AND l.locktype = 'relation' AND l.relation = 'pgsched.runs'::regclass
          AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') AND l.granted
          AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
          AND l.pid IS DISTINCT FROM pg_backend_pid()) AS writers,
    EXISTS (SELECT FROM pgsched.runs r
            WHERE r.phase >= 3 AND r.finished_at > (SELECT m.counted_until FROM pgsched.rollup_mark m)) AS some
FROM clock
