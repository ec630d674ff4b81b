-- web_after: the jobs that a job waits for, and those that wait for it.
-- params: id bigint, after text (an array of bigint: those that it waits for), n int
-- returns: (side: before or behind, id, name: null where it was deleted), by name
-- locks: none
SELECT 'before' AS side, a.id, j.name FROM unnest(%(after)s::text::bigint[]) a(id) LEFT JOIN pgsched.jobs j ON j.id = a.id
UNION ALL
(SELECT 'behind', id, name FROM pgsched.jobs WHERE after_jobs @> ARRAY[%(id)s::bigint] ORDER BY name LIMIT %(n)s)
ORDER BY 1, 3, 2
