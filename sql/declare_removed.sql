-- declare_removed: delete the jobs that this app declared once and declares no longer.
-- params: declared_by text, names text[] (what it declares now)
-- returns: name
-- locks: those jobs
DELETE FROM pgsched.jobs WHERE declared_by = %(declared_by)s AND name <> ALL (%(names)s::text[]) RETURNING name
