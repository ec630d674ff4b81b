-- run_present: which of these runs there are.
-- params: ids bigint[]
-- returns: id
-- locks: none
SELECT id FROM pgsched.runs WHERE id = ANY (%(ids)s::text::bigint[])
