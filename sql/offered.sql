-- offered: how many live workers would claim a run of this queue, kind and task.
-- params: queue text, kind text, task text (of python)
-- returns: (workers bigint, alive bigint: live workers altogether)
-- locks: none
SELECT count(*) FILTER (WHERE (queues IS NULL OR %(queue)s = ANY (queues)) AND %(kind)s = ANY (kinds)
                          AND (%(kind)s <> 'python' OR %(task)s = ANY (tasks))) AS workers, count(*) AS alive
FROM pgsched.workers WHERE stopped_at IS NULL AND stopping_at IS NULL AND seen_at > clock_timestamp() - lease
