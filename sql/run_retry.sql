-- run_retry: revive a dead, cancelled, missed or skipped run.
-- params: id bigint
-- returns: (before: its state, after: queued, or the unchanged state; null: no such run)
-- locks: that run
SELECT (SELECT state FROM pgsched.runs WHERE id = %(id)s) AS before, pgsched.retry(%(id)s) AS after
