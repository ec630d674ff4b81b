-- backfill_advance: how far a backfill is; finished, or failed where there is an error.
-- params: id bigint, cursor_at timestamptz (null: unchanged), considered, started int, finished boolean, error text
-- returns: nothing
-- locks: the row that backfill_open locked
UPDATE pgsched.backfills SET cursor_at = coalesce(%(cursor_at)s, cursor_at), considered = considered + %(considered)s,
    started = started + %(started)s, finished_at = CASE WHEN %(finished)s THEN clock_timestamp() END, error = %(error)s
WHERE id = %(id)s
