-- What is charged when a worker dies: attempts that had begun, and no others (sql/reaper.sql).

-- begun: the worker's last heartbeat said that the attempt was being made; each claim begins with null.
-- suspect: a worker died that held this run, and no attempt has ended by itself since; null: not so.
ALTER TABLE pgsched.runs ADD COLUMN begun boolean, ADD COLUMN suspect boolean;

-- How many of the runs that it has found a claim takes, the first ones; null: all of them. The notes are those of
-- claim_found in sql/claims.sql, in the order of the runs. What is suspect is taken alone. It counts as begun once it is
-- claimed, as does what has one attempt: both need one of the free places. What a claim holds takes no more than 16 MiB,
-- if it is more than one run.
CREATE FUNCTION pgsched.claim_limit(notes integer[], places integer) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT min(n.place) - 1 FROM (
        SELECT place, note, sum(note >> 2) OVER (ORDER BY place ROWS UNBOUNDED PRECEDING) AS bytes
        FROM unnest(notes) WITH ORDINALITY AS u (note, place)
    ) n
    WHERE n.note & 3 > 0 AND n.place > places
       OR n.place > 1 AND ((n.note | notes[1]) & 2 > 0 OR n.bytes > 16777216)
$$;

COMMENT ON COLUMN pgsched.runs.begun IS
    'The worker''s last heartbeat said that the attempt was being made. Null where no heartbeat has said so.';
COMMENT ON COLUMN pgsched.runs.suspect IS
    'A worker died that held this run, and no attempt has ended by itself since: it is claimed alone. Null: not so.';
COMMENT ON COLUMN pgsched.runs.crashes IS 'How many attempts in a row took their worker or their process down.';
