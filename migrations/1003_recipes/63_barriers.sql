-- Double barriers: n members start together and end together. The state of one is a key of the store, {"size", "round", "open"};
-- its members are keys below it, bound to their sessions. A round is closed, then open, then over.

-- Locks a barrier and returns its state; without the members whose sessions have ended.
CREATE FUNCTION pgsched.barrier_lock(name text, size integer) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    state jsonb;
BEGIN
    PERFORM pgsched.check_key(name);
    PERFORM pgsched.commit_durably();
    PERFORM pgsched.store_lock(pgsched.store_root(name));
    PERFORM pgsched.check_key(name);
    state := coalesce((SELECT k.value FROM pgsched.store k WHERE k.key = barrier_lock.name), '{"round": 1, "open": false}');
    IF jsonb_typeof(state) <> 'object' OR NOT state ?& ARRAY['round', 'open'] THEN
        PERFORM pgsched.raise_bad_value(format('name: "%s" is a key of the store, and no barrier', name), 'store');
    END IF;
    -- all members of an open round have gone, those by themselves whose sessions have ended: it is over
    IF (state -> 'open')::boolean AND pgsched.barrier_members(name) = 0 THEN
        state := jsonb_build_object('round', (state -> 'round')::bigint + 1, 'open', false);
        PERFORM pgsched.store_write(pgsched.store_root(name), name, state, NULL);
    END IF;
    RETURN state;
END $$;

CREATE FUNCTION pgsched.barrier_members(name text) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT count(*) FROM pgsched.store k
    WHERE k.root = pgsched.store_root(name) AND k.key > (name || '/') COLLATE "C" AND k.key < (name || '0') COLLATE "C"
      AND k.session IS NOT NULL
$$;

-- Enters a double barrier of this size, with a token that the caller has chosen; asked again with it, it says how it stands.
-- `round`: null while the members of the round before have not all left. `open`: as many have entered as the barrier's size.
CREATE FUNCTION pgsched.barrier_enter(name text, token uuid, size integer, session uuid, note jsonb DEFAULT 'null',
    OUT round bigint, OUT open boolean, OUT members bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    member text := name || '/' || replace(token::text, '-', '');
    state jsonb;
    s pgsched.sessions;
    mine pgsched.store;
    inside jsonb;
BEGIN
    IF size IS NULL OR size NOT BETWEEN 1 AND 10000 THEN
        PERFORM pgsched.raise_bad_value(pgsched.out_of_range('size', size, 1, 10000), 'store');
    ELSIF length(name) > 200 THEN
        PERFORM pgsched.raise_bad_value('name: longer than 200 characters', 'store');
    END IF;
    state := pgsched.barrier_lock(name, size);
    members := pgsched.barrier_members(name);
    SELECT * INTO mine FROM pgsched.store k WHERE k.key = member;
    IF mine.key IS NOT NULL THEN
        round := (state -> 'round')::bigint;
        open := (state -> 'open')::boolean;
        RETURN;
    END IF;
    open := false;
    IF (state -> 'open')::boolean THEN
        RETURN;
    END IF;
    SELECT * INTO s FROM pgsched.sessions o WHERE o.token = barrier_enter.session;
    IF s.id IS NULL OR NOT pgsched.session_lives(s.id) THEN
        PERFORM pgsched.raise_session_ended();
    END IF;
    PERFORM pgsched.refuse_others('the session', s.owner) WHERE s.owner <> pgsched.caller();
    IF members > 0 AND (state -> 'size')::integer <> size THEN
        PERFORM pgsched.raise_bad_value(format('size: others wait at "%s" for %s members, not %s', name, state -> 'size', size), 'store');
    END IF;
    PERFORM pgsched.store_write(pgsched.store_root(name), member, coalesce(note, 'null'), s.id);
    members := members + 1;
    open := members >= size;
    state := jsonb_build_object('size', size, 'round', state -> 'round', 'open', open);
    PERFORM pgsched.store_write(pgsched.store_root(name), name, state, NULL);
    round := (state -> 'round')::bigint;
END $$;

-- Leaves a double barrier; returns whether all members of that round have left. Called again, it says how it stands.
CREATE FUNCTION pgsched.barrier_leave(name text, token uuid, round bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    member text := name || '/' || replace(token::text, '-', '');
    state jsonb := pgsched.barrier_lock(name, NULL);
BEGIN
    IF EXISTS (SELECT FROM pgsched.store k WHERE k.key = member) THEN
        PERFORM pgsched.store_write(pgsched.store_root(name), member, NULL, NULL);
        state := pgsched.barrier_lock(name, NULL);
    END IF;
    RETURN (state -> 'round')::bigint > round OR NOT (state -> 'open')::boolean;
END $$;
