-- declare_removed: the jobs that an app declared before and declares no more; deleted if `remove`.
-- params: declared_by text, names text[], remove boolean
-- returns: name
-- locks: the deleted rows
WITH gone AS (
    DELETE FROM pgsched.jobs
    WHERE %(remove)s AND declared_by = %(declared_by)s AND name <> ALL (%(names)s::text[]) RETURNING name
)
SELECT name FROM gone
UNION ALL
SELECT name FROM pgsched.jobs
WHERE NOT %(remove)s AND declared_by = %(declared_by)s AND name <> ALL (%(names)s::text[])
