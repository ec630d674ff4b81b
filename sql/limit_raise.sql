-- limit_raise: runs that have waited long get the priority that they have risen to, so that claims see it too.
-- params: parallel arrays ids bigint[], priorities smallint[]
-- returns: nothing
-- locks: those runs; called before limit_admit, in the same transaction, with runs that still wait
UPDATE pgsched.runs r SET priority = g.priority
FROM unnest(%(ids)s::text::bigint[], %(priorities)s::text::smallint[]) AS g(id, priority)
WHERE r.id = g.id AND r.phase = 0
  AND r.id IN (SELECT w.id FROM pgsched.runs w WHERE w.id = ANY (%(ids)s::text::bigint[]) FOR UPDATE SKIP LOCKED)
