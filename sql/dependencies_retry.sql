-- dependencies_retry: revive every run of a graph that ended and did not succeed.
-- params: id bigint
-- returns: (id, state: queued, or waiting for others) of each
-- locks: those runs
SELECT id, state FROM pgsched.retry_tree(%(id)s)
