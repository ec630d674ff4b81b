-- Double barriers: n members start together and end together. The state of one is the key NAME/barrier of the store, with
-- {"size", "round", "open"}; its members are the keys below it, bound to their sessions. A round is closed, then open, then
-- over. Invariant: a round has a member; without one, its state is deleted. The number of a round is never given again.

-- The key of a double barrier. Refuses names that are none, or that the caller may not use.
CREATE FUNCTION pgsched.barrier_key(name text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF name IS NULL OR length(name) NOT BETWEEN 1 AND 200 THEN
        PERFORM pgsched.raise_bad_value(format('name: expected 1 to 200 characters, got %s', coalesce(length(name)::text, 'null')), 'store');
    END IF;
    PERFORM pgsched.check_key(name || '/barrier');
    RETURN name || '/barrier';
END $$;

-- Locks a double barrier, and returns its state; null between two rounds.
CREATE FUNCTION pgsched.barrier_lock(key text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    state jsonb;
BEGIN
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);
    SELECT k.value INTO state FROM pgsched.store k WHERE k.key = barrier_lock.key;
    IF FOUND AND NOT pgsched.is_barrier(state) THEN
        PERFORM pgsched.raise_bad_value(format('name: the value of key "%s" is not that of a barrier: delete the key', key), 'store');
    END IF;
    RETURN state;
END $$;

CREATE FUNCTION pgsched.is_barrier(state jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN jsonb_typeof(state -> 'open') = 'boolean' AND jsonb_typeof(state -> 'round') = 'number'
            AND jsonb_typeof(state -> 'size') = 'number'
        THEN (state -> 'round')::numeric BETWEEN 1 AND 9223372036854775807 AND (state -> 'size')::numeric BETWEEN 1 AND 10000
        ELSE false END
$$;

CREATE FUNCTION pgsched.barrier_members(key text) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT count(*) FROM pgsched.store k
    WHERE k.key > (barrier_members.key || '/') COLLATE "C" AND k.key < (barrier_members.key || '0') COLLATE "C" AND k.session IS NOT NULL
      AND pgsched.session_lives(k.session)
$$;

-- Keys under a root that the caller has locked were deleted: rounds whose last member has gone are over.
CREATE FUNCTION pgsched.barriers_settle(root text, gone text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one text;
BEGIN
    FOR one IN SELECT k.key FROM pgsched.store k
        WHERE k.key IN (SELECT left(g.key, -33) FROM unnest(gone) AS g(key) WHERE g.key ~ '/barrier/[0-9a-f]{32}$')
          AND pgsched.is_barrier(k.value)
        ORDER BY k.key
    LOOP
        IF pgsched.barrier_members(one) = 0 THEN
            PERFORM pgsched.store_write(root, one, NULL, NULL);
        END IF;
    END LOOP;
END $$;

-- Enters a double barrier of this size, with a token that the caller has chosen; asked again with it, it says how it stands.
--   round     null: not inside, because not all members of the round before have left
--   open      as many have entered as the barrier's size
-- Who waits watches the key NAME/barrier (kv_changes): it is written when a round opens, and deleted when it is over.
CREATE FUNCTION pgsched.barrier_enter(name text, token uuid, size integer, session uuid, note jsonb DEFAULT 'null',
    OUT round bigint, OUT open boolean, OUT members bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    barrier text := pgsched.barrier_key(name);
    member text := barrier || '/' || replace(token::text, '-', '');
    root text := pgsched.store_root(barrier);
    state jsonb;
    version bigint;
    of_session bigint;
    alive bigint;
BEGIN
    IF size IS NULL OR size NOT BETWEEN 1 AND 10000 THEN
        PERFORM pgsched.raise_bad_value(pgsched.out_of_range('size', size, 1, 10000), 'store');
    ELSIF token IS NULL OR session IS NULL THEN
        PERFORM pgsched.raise_bad_value('token: neither it nor the session must be null', 'store');
    END IF;
    PERFORM pgsched.check_value(note);
    state := pgsched.barrier_lock(barrier);
    open := coalesce((state -> 'open')::boolean, false);
    round := (state -> 'round')::bigint;
    members := pgsched.barrier_members(barrier);
    SELECT k.session INTO of_session FROM pgsched.store k WHERE k.key = member;
    IF FOUND THEN
        alive := pgsched.living_session(session);
        IF of_session IS DISTINCT FROM alive THEN  -- the one with which it has entered is lost
            PERFORM pgsched.store_write(root, member, note, alive);
        END IF;
    ELSIF open THEN
        open := false;
        round := NULL;
    ELSIF (state -> 'size')::integer <> size THEN
        PERFORM pgsched.raise_bad_value(format('size: others wait at "%s" for %s members, not %s', name, state -> 'size', size), 'store');
    ELSE
        version := pgsched.store_write(root, member, note, pgsched.living_session(session));
        members := members + 1;
        open := members >= size;
        round := coalesce(round, version);
        IF open OR state IS NULL THEN
            PERFORM pgsched.store_write(root, barrier, jsonb_build_object('size', size, 'round', round, 'open', open), NULL);
        END IF;
    END IF;
END $$;

-- Leaves a double barrier; returns whether all members of that round have left. Called again, it says how it stands.
CREATE FUNCTION pgsched.barrier_leave(name text, token uuid, round bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    barrier text := pgsched.barrier_key(name);
    state jsonb;
BEGIN
    PERFORM pgsched.kv_delete(barrier || '/' || replace(token::text, '-', ''));
    SELECT k.value INTO state FROM pgsched.store k WHERE k.key = barrier;
    RETURN NOT FOUND OR NOT pgsched.is_barrier(state) OR (state -> 'round')::bigint <> round OR NOT (state -> 'open')::boolean;
END $$;

-- Gives up waiting for a double barrier to open. False: it has opened, with the caller inside, who goes on or leaves.
CREATE FUNCTION pgsched.barrier_withdraw(name text, token uuid) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    barrier text := pgsched.barrier_key(name);
    member text := barrier || '/' || replace(token::text, '-', '');
BEGIN
    IF NOT EXISTS (SELECT FROM pgsched.store k WHERE k.key = member) THEN
        RETURN true;
    ELSIF (pgsched.barrier_lock(barrier) -> 'open')::boolean THEN
        RETURN NOT EXISTS (SELECT FROM pgsched.store k WHERE k.key = member);
    END IF;
    PERFORM pgsched.kv_delete(member);
    RETURN true;
END $$;
