-- declare_withdraw: delete jobs that nobody declares any more. Under declare_try_lock.
-- params: ids bigint[]
-- returns: name text, app text
-- locks: those rows, skipping locked ones: somebody edits them
WITH free AS MATERIALIZED (
    SELECT id FROM pgsched.jobs WHERE id = ANY (%(ids)s::bigint[]) AND declared_by IS NOT NULL FOR UPDATE SKIP LOCKED
)
DELETE FROM pgsched.jobs j USING free WHERE j.id = free.id RETURNING j.name, j.declared_by AS app
