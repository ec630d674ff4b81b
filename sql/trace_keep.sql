-- trace_keep: the next attempts of these runs belong to the trace of the one that has failed.
-- params: parallel arrays ids bigint[], attempts int[], traces text[] (JSON objects)
-- returns: nothing
-- locks: the runs' rows; those that others hold are left out
UPDATE pgsched.runs r SET options = coalesce(r.options, '{}') || jsonb_build_object('trace', f.trace)
FROM (SELECT o.id, k.trace::jsonb AS trace
      FROM unnest(%(ids)s::bigint[], %(attempts)s::int[], %(traces)s::text[]) AS k(id, attempt, trace)
      JOIN pgsched.runs o ON o.id = k.id AND o.attempt = k.attempt AND o.phase < 3
      FOR NO KEY UPDATE OF o SKIP LOCKED) f
WHERE r.id = f.id
