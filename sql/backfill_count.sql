-- backfill_count: write down how many slots a backfill has that was asked for without counting them.
-- params: id bigint, slots bigint
-- returns: nothing
-- locks: the row that backfill_open locked
UPDATE pgsched.backfills SET slots = %(slots)s WHERE id = %(id)s
