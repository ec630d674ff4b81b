-- prune_backfills: backfills ended before the horizon go, as their runs do. The runs keep the number.
-- params: keep_s float8, n int
-- returns: nothing
-- locks: those rows, skipping locked ones
WITH old AS MATERIALIZED (
    SELECT b.id FROM pgsched.backfills b
    WHERE b.finished_at < clock_timestamp() - make_interval(secs => %(keep_s)s)
      AND (SELECT true FROM pgsched.runs r WHERE r.backfill_id = b.id AND r.phase < 3 LIMIT 1) IS NULL
    ORDER BY b.id LIMIT %(n)s FOR UPDATE SKIP LOCKED
)
DELETE FROM pgsched.backfills b USING old WHERE b.id = old.id
