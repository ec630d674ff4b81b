-- backfill_cancel: end a backfill and its open runs.
-- params: id bigint, reason text
-- returns: what: cancelled, finished (it had ended); null: no such backfill
-- locks: the backfill and its open runs
SELECT pgsched.cancel_backfill(%(id)s, %(reason)s) AS what
