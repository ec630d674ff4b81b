-- How much a role may have of each kind, without counting it each time. The rows of a kind have numbers that rise with each row
-- that anybody adds: so of a role that had n rows when number m was given, and may have `most`, there is nothing to count before
-- number m + most - n. Then it is counted anew. A hundredth more than `most` may be there before that is noticed, and what
-- transactions add that are open while it is counted.

-- How many rows of a kind a role has; at most `most` and one more.
CREATE FUNCTION pgsched.rows_of_role(what text, owner name, most bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE what
        WHEN 'sessions' THEN (SELECT count(*) FROM (SELECT FROM pgsched.sessions s WHERE s.owner = rows_of_role.owner LIMIT most + 1) few)
        WHEN 'locks' THEN (SELECT count(*) FROM (SELECT FROM pgsched.locks l WHERE l.owner = rows_of_role.owner LIMIT most + 1) few)
        WHEN 'lock_places' THEN (SELECT count(*) FROM (SELECT FROM pgsched.sessions s JOIN pgsched.lock_places p ON p.session = s.id
                                                       WHERE s.owner = rows_of_role.owner LIMIT most + 1) few)
        WHEN 'store_roots' THEN (SELECT count(*) FROM (SELECT FROM pgsched.store_roots r WHERE r.owner = rows_of_role.owner LIMIT most + 1) few)
        WHEN 'item_queues' THEN (SELECT count(*) FROM (SELECT FROM pgsched.item_queues q WHERE q.owner = rows_of_role.owner LIMIT most + 1) few)
    END;
END $$;

-- Whether the row with this number, which was just added for a role, is not one too many. Nobody waits for anybody here.
CREATE FUNCTION pgsched.has_room(what text, owner name, number bigint, most bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    counted bigint;
BEGIN
    IF number <= (SELECT r.room_until FROM pgsched.role_room r WHERE r.what = has_room.what AND r.owner = has_room.owner
                  ORDER BY r.counted_at DESC LIMIT 1) THEN
        RETURN true;
    END IF;
    counted := pgsched.rows_of_role(what, owner, most);
    IF counted > most THEN
        RETURN false;
    END IF;
    IF current_setting('transaction_isolation') = 'read committed' THEN  -- an older snapshot counts too few
        DELETE FROM pgsched.role_room r WHERE (r.what, r.owner, r.counted_at) IN (
            SELECT o.what, o.owner, o.counted_at FROM pgsched.role_room o
            WHERE o.what = has_room.what AND o.owner = has_room.owner FOR UPDATE SKIP LOCKED);
        INSERT INTO pgsched.role_room (what, owner, counted_at, room_until)
        VALUES (has_room.what, has_room.owner, number, number + greatest(most - counted, most / 100)) ON CONFLICT DO NOTHING;
    END IF;
    RETURN true;
END $$;
