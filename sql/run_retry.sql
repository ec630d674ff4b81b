-- run_retry: revive a dead, cancelled, missed or skipped run.
-- params: id bigint, now boolean (start it whatever became of runs that it waited for)
-- returns: (before: its state, after: queued or waiting, or the unchanged state; null: no such run)
-- locks: that run
SELECT (SELECT state FROM pgsched.runs WHERE id = %(id)s) AS before,
    CASE WHEN %(now)s THEN pgsched.retry_now(%(id)s) ELSE pgsched.retry(%(id)s) END AS after
