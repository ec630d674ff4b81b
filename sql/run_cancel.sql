-- run_cancel: cancel a run, at once or by asking its worker.
-- params: id bigint, reason text
-- returns: what: cancelled, requested, or the terminal state it already had; null: no such run
-- locks: that run
SELECT pgsched.cancel(%(id)s, %(reason)s) AS what
