-- What leaves the database is named by its uuid, the number that it has here, and the microsecond in which it was made: a
-- number that comes again, after a failover or in another database, is another name, and what a backup brings back keeps its own.

-- One row. A copy of a database has both uuids; give it a fleet of its own, and processes of the one refuse the other:
-- UPDATE pgsched.identity SET fleet = gen_random_uuid()
CREATE TABLE pgsched.identity (
    name     text PRIMARY KEY DEFAULT 'database' CHECK (name = 'database'),
    database uuid NOT NULL DEFAULT gen_random_uuid(),
    fleet    uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO pgsched.identity DEFAULT VALUES;

-- How often somebody asked for an ended run again; null: never.
ALTER TABLE pgsched.runs ADD COLUMN reruns integer;

-- The name, outside of this database, of what has this number and was made at this instant; with the number of its
-- reruns, as each of these is something else. Null where the database has no row in pgsched.identity. With its owner's rights.
CREATE FUNCTION pgsched.outside_name(number bigint, made_at timestamptz, reruns integer DEFAULT NULL) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT concat_ws('-', i.database, number, (extract(epoch FROM made_at) * 1000000)::bigint, nullif(reruns, 0))
    FROM pgsched.identity i
$$;

-- Fails unless this database is one of that fleet; null: any is. Returns the fleet, null where the database has none. With
-- its owner's rights: who may only make runs is told of it, too.
CREATE FUNCTION pgsched.assert_fleet(expected uuid) RETURNS uuid
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found uuid := (SELECT i.fleet FROM pgsched.identity i);
BEGIN
    IF found <> expected THEN
        RAISE EXCEPTION USING ERRCODE = 'PS409', MESSAGE =
            format('this database is of the fleet %s, and the process of %s', found, expected);
    END IF;
    RETURN found;
END $$;

ALTER TABLE pgsched.archived_runs ADD COLUMN outside_name text;

COMMENT ON TABLE pgsched.identity IS 'Which database this is, and of which fleet. One row.';
COMMENT ON COLUMN pgsched.identity.database IS 'In the names of what leaves the database (outside_name).';
COMMENT ON COLUMN pgsched.identity.fleet IS 'Processes of another fleet refuse this database, as it refuses them.';
COMMENT ON COLUMN pgsched.runs.reruns IS 'How often somebody asked for it again once it had ended; NULL: never.';
COMMENT ON COLUMN pgsched.archived_runs.outside_name IS 'The name of this run outside of the database: run_id may come again.';
COMMENT ON FUNCTION pgsched.outside_name IS
    'A name that no other database, and no other thing with this number, has: database, number, microsecond, reruns.';
COMMENT ON FUNCTION pgsched.assert_fleet IS 'Fails with PS409 unless this database is of that fleet.';
