-- web_newest_run: the highest id of a run, 0 without one.
-- params: none
-- returns: one row: id
-- locks: none
SELECT coalesce(max(id), 0) AS id FROM pgsched.runs
