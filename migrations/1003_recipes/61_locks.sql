-- Locks: a line for each name, in which contenders are served in their order. All changes of a line are made under the lock
-- of its row in pgsched.locks, and each changes that row: transactions of every isolation level follow one another.

-- Locks the row of a lock and changes it, so that a transaction with an older snapshot fails instead of deciding by it.
CREATE FUNCTION pgsched.lock_row(name text) RETURNS SETOF pgsched.locks
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE pgsched.locks l SET used_at = clock_timestamp() WHERE l.name = lock_row.name RETURNING l.*
$$;

-- Tells a session that this place of it has changed. The notification only says: look. It has the first 18 characters of the
-- place's token: so a session that has 10,000 places looks at one of them.
CREATE FUNCTION pgsched.tell_session(session bigint, token uuid) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT pgsched.notify('pgsched_session_' || session, left(token::text, 18))
$$;

-- Takes a place out of a line whose row the caller has locked. If a transaction that asserts the grant goes on (assert_lock),
-- the place stays until that transaction ends, and is marked: it is not held any more. The first of those that wait looks
-- for its end. If it was the first of them itself, the next one is told: only the first looks when a lease ends.
CREATE FUNCTION pgsched.lock_leave(name text, place bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    waited boolean;
    told boolean;
BEGIN
    DELETE FROM pgsched.lock_places q WHERE q.lock = lock_leave.name AND q.place = (
        SELECT e.place FROM pgsched.lock_places e WHERE e.lock = lock_leave.name AND e.place = lock_leave.place FOR UPDATE SKIP LOCKED)
    RETURNING q.fence IS NULL INTO waited;
    IF waited IS NULL THEN
        UPDATE pgsched.lock_places q SET left_at = clock_timestamp()
        WHERE q.lock = lock_leave.name AND q.place = lock_leave.place AND q.left_at IS NULL;
        told := FOUND;
    ELSE
        told := waited AND NOT EXISTS (SELECT FROM pgsched.lock_places q
            WHERE q.lock = lock_leave.name AND q.fence IS NULL AND q.place < lock_leave.place);
    END IF;
    IF told THEN
        PERFORM pgsched.tell_session(first.session, first.token) FROM (
            SELECT q.session, q.token FROM pgsched.lock_places q
            WHERE q.lock = lock_leave.name AND q.fence IS NULL ORDER BY q.place LIMIT 1) first;
    END IF;
END $$;

-- Serves a line whose row the caller has locked: removes who has ended or given up, and grants to those who are next. It
-- reads the holders and those who are next, not those behind them. A grant that its holder asserts in a transaction that
-- goes on (assert_lock) is not removed, and so not given on. `asking`: a place whose caller waits for this answer, so that it
-- has not given up.
CREATE FUNCTION pgsched.lock_settle(name text, asking bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    capacity integer;  -- of a semaphore, read when it is needed
    holders integer := 0;
    exclusive boolean := false;
    p record;
BEGIN
    FOR p IN SELECT q.place, q.session, q.token, q.mode, q.fence, q.left_at,
            q.fence IS NULL AND q.give_up_at <= moment AND q.place IS DISTINCT FROM asking AS gave_up, s.ended_at, s.lease_until
        FROM pgsched.lock_places q JOIN pgsched.sessions s ON s.id = q.session
        WHERE q.lock = lock_settle.name ORDER BY q.place
    LOOP
        IF p.ended_at IS NULL AND p.lease_until <= moment THEN
            -- a renewal that was sent in time and is not committed yet has locked the row
            UPDATE pgsched.sessions s SET ended_at = moment WHERE s.id = (
                SELECT e.id FROM pgsched.sessions e WHERE e.id = p.session AND e.ended_at IS NULL AND e.lease_until <= moment
                FOR NO KEY UPDATE SKIP LOCKED) RETURNING s.ended_at INTO p.ended_at;
        END IF;
        IF p.ended_at IS NOT NULL OR p.left_at IS NOT NULL OR p.gave_up THEN
            DELETE FROM pgsched.lock_places q WHERE q.lock = lock_settle.name AND q.place = (
                SELECT e.place FROM pgsched.lock_places e WHERE e.lock = lock_settle.name AND e.place = p.place FOR UPDATE SKIP LOCKED);
            CONTINUE WHEN FOUND OR p.fence IS NULL;
        END IF;
        IF p.fence IS NULL THEN
            IF p.mode = 'counted' AND capacity IS NULL THEN
                SELECT l.capacity INTO capacity FROM pgsched.locks l WHERE l.name = lock_settle.name;
            END IF;
            EXIT WHEN CASE p.mode WHEN 'counted' THEN holders >= capacity WHEN 'exclusive' THEN holders > 0 ELSE exclusive END;
            PERFORM pgsched.commit_durably();
            UPDATE pgsched.lock_places q SET fence = nextval('pgsched.fences'::regclass), granted_at = moment, give_up_at = NULL
            WHERE q.lock = lock_settle.name AND q.place = p.place;
            PERFORM pgsched.tell_session(p.session, p.token);
        END IF;
        holders := holders + 1;
        exclusive := exclusive OR p.mode = 'exclusive';
    END LOOP;
END $$;

-- When to look at this line again, for who is next in it: when the first lease of a holder ends, or soon, if one has ended
-- and cannot be given on yet.
CREATE FUNCTION pgsched.lock_look_at(name text) RETURNS timestamptz
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT greatest(min(least(s.lease_until, s.ended_at, p.left_at)), clock_timestamp() + interval '0.2 s')
    FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
    WHERE p.lock = lock_look_at.name AND p.fence IS NOT NULL
$$;

-- Nobody who lives stands before this place and waits.
CREATE FUNCTION pgsched.lock_is_next(name text, place bigint) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT EXISTS (
        SELECT FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
        WHERE p.lock = lock_is_next.name AND p.place < lock_is_next.place AND p.fence IS NULL
          AND s.ended_at IS NULL AND s.lease_until > clock_timestamp() AND (p.give_up_at IS NULL OR p.give_up_at > clock_timestamp()))
$$;

-- How many who live wait before this place, and one more; at most 100.
CREATE FUNCTION pgsched.lock_position(name text, place bigint) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT count(*) + 1 FROM (
        SELECT FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
        WHERE p.lock = lock_position.name AND p.place < lock_position.place AND p.fence IS NULL
          AND s.ended_at IS NULL AND s.lease_until > clock_timestamp() AND (p.give_up_at IS NULL OR p.give_up_at > clock_timestamp())
        LIMIT 99) few
$$;

-- Locks the row of a lock, making it where it is new. A role may have 100,000 names; then those are forgotten that nobody has
-- used for an hour.
CREATE FUNCTION pgsched.lock_take_row(name text, capacity integer, kind text) RETURNS pgsched.locks
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l pgsched.locks;
    number bigint;
BEGIN
    LOOP
        UPDATE pgsched.locks k SET used_at = clock_timestamp(), kind = coalesce(lock_take_row.kind, k.kind)
        WHERE k.name = lock_take_row.name RETURNING * INTO l;
        EXIT WHEN FOUND;
        INSERT INTO pgsched.locks AS k (name, owner, capacity) VALUES (lock_take_row.name, pgsched.caller(), lock_take_row.capacity)
        ON CONFLICT DO NOTHING RETURNING k.number INTO number;
        IF number IS NOT NULL AND NOT pgsched.has_room('locks', pgsched.caller(), number, 100000)
            AND NOT pgsched.forget_names(pgsched.caller()) THEN
            PERFORM pgsched.raise_bad_value(format('name: role "%s" has 100000 names of locks that were used within an hour, and may'
                ' have no more', pgsched.caller()), 'locks');
        END IF;
    END LOOP;
    RETURN l;
END $$;

-- Forgets up to 1,000 names of this role that nobody has used for an hour; returns whether there were any.
CREATE FUNCTION pgsched.forget_names(owner name) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unused text[] := ARRAY(
        SELECT k.name FROM pgsched.locks k
        WHERE k.owner = forget_names.owner AND k.used_at < clock_timestamp() - interval '1 hour'
          AND NOT EXISTS (SELECT FROM pgsched.lock_places p WHERE p.lock = k.name)
        LIMIT 1000 FOR UPDATE SKIP LOCKED);
BEGIN
    -- somebody may have got in line before the rows were locked
    DELETE FROM pgsched.locks k WHERE k.name = ANY (unused) AND NOT EXISTS (SELECT FROM pgsched.lock_places p WHERE p.lock = k.name);
    RETURN FOUND;
END $$;

-- Refuses a place that was just added to a line that had 20,000, or for a role that had 100,000 in all lines. Those of a line are
-- counted for each hundredth place only; a refused call takes no place, so that the next one is counted too.
CREATE FUNCTION pgsched.check_room(l pgsched.locks, owner name, number bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT pgsched.has_room('lock_places', owner, number, 100000) THEN
        PERFORM pgsched.sweep_sessions(100, owner);
        IF NOT pgsched.has_room('lock_places', owner, number, 100000) THEN
            PERFORM pgsched.raise_bad_value(format('name: role "%s" holds or waits for 100000 locks, and may for no more', owner), 'lock_places');
        END IF;
    END IF;
    IF l.last_place % 100 <> 1 THEN
        RETURN;
    END IF;
    -- below: conditions with queries cost their start, also where they are not reached
    IF (SELECT count(*) FROM (SELECT FROM pgsched.lock_places p WHERE p.lock = l.name LIMIT 20001) few) = 20001
        AND NOT pgsched.forget_places(l.name) THEN
        PERFORM pgsched.raise_bad_value(format('name: 20000 hold "%s" or wait for it, and there can be no more', l.name), 'lock_places');
    END IF;
END $$;

-- Removes from a line whose row the caller has locked up to 1,000 of those that wait no longer: they stand anywhere in it, and
-- lock_settle reads only its beginning. Returns whether there were any.
CREATE FUNCTION pgsched.forget_places(name text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM pgsched.lock_places q WHERE q.token = ANY (ARRAY(
        SELECT p.token FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
        WHERE p.lock = forget_places.name AND p.fence IS NULL
          AND (p.give_up_at <= clock_timestamp() OR s.ended_at IS NOT NULL OR s.lease_until <= clock_timestamp())
        ORDER BY p.place LIMIT 1000 FOR UPDATE OF p SKIP LOCKED));
    RETURN FOUND;
END $$;

-- Lets this transaction wait for a locked row no longer than this (20 days and more: as it does); returns the setting as it was.
CREATE FUNCTION pgsched.wait_for_rows(most interval) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before text := current_setting('lock_timeout');
BEGIN
    IF most < interval '20 days' AND (before::interval = interval '0' OR before::interval > most) THEN
        PERFORM set_config('lock_timeout', ceil(extract(epoch FROM most) * 1000)::text, true);
    END IF;
    RETURN before;
END $$;

-- Asks for a lock, with a token that the caller has chosen: a caller that got no answer asks again with it.
--   wait      '0 s': now or not at all. Longer: get in line, and leave it after this time. Null: leave it with the session.
--             If another transaction has locked the line for this time (and 0.2 s), the call fails with 55P03.
--   mode      'exclusive'; or 'shared', which several may have at the same time, but none together with an exclusive one
--   capacity  not null: a semaphore, which so many may have at the same time
--   session   the session that this hangs on. Null: one of its own, which has the same token, and for which each call with
--             this token is a renewal for `ttl`
--   note      for those who read the line
--   kind      'lock' or 'election': what lists call the name. Null: as before
-- Returns
--   fence        the number of the grant. Null: not granted
--   place        the place in line, from 1; 1 if it is granted. Null: not in line
--   lease_until  when the session ends unless it is renewed
--   look_at      set if the place is the first of those that wait: when to ask again at the latest
-- Call it in a transaction of its own: until it is committed, all others wait for it. Whoever waits is told by a
-- notification of the channel pgsched_session_N, where N is the session's id; it has the first 18 characters of the token.
CREATE FUNCTION pgsched.lock_acquire(name text, token uuid, ttl interval DEFAULT '30 s', wait interval DEFAULT '0 s',
    mode text DEFAULT 'exclusive', capacity integer DEFAULT NULL, note text DEFAULT NULL, session uuid DEFAULT NULL,
    kind text DEFAULT NULL, OUT fence bigint, OUT place bigint, OUT lease_until timestamptz, OUT look_at timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l pgsched.locks;
    s pgsched.sessions;
    mine pgsched.lock_places;
    checked name;  -- the owner with whom the caller may use the name
    wanted text := CASE WHEN capacity IS NULL THEN mode ELSE 'counted' END;
    patience text;
    alone boolean;
    problem text := coalesce(
        CASE WHEN token IS NULL THEN 'token: must not be null' END,
        CASE WHEN mode IN ('exclusive', 'shared') THEN NULL ELSE pgsched.not_one_of('mode', mode, ARRAY['exclusive', 'shared']) END,
        CASE WHEN kind IS NOT NULL THEN pgsched.not_one_of('kind', kind, ARRAY['lock', 'election']) END,
        CASE WHEN capacity NOT BETWEEN 1 AND 10000 THEN pgsched.out_of_range('capacity', capacity, 1, 10000) END,
        CASE WHEN octet_length(note) > 65536 THEN 'note: longer than 64 KiB' END,
        CASE WHEN wait < '0 s' OR wait > '365 days' THEN format('wait: %s is not between 0 and 365 days', wait) END);
BEGIN
    SELECT * INTO l FROM pgsched.locks k WHERE k.name = lock_acquire.name;
    IF l.name IS NULL THEN  -- a name that has a row was checked when the row was made
        problem := coalesce(pgsched.bad_text('name', name, 200), problem);
    END IF;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'locks');
    END IF;
    PERFORM pgsched.check_name('lock', name, l.owner);
    checked := l.owner;
    IF session IS NOT NULL THEN
        PERFORM pgsched.own_session(session);
    END IF;
    PERFORM pgsched.commit_durably();

    -- the row of the lock: what is in line is read only when it is locked
    patience := pgsched.wait_for_rows(coalesce(wait, interval '365 days') + interval '0.2 s');
    l := pgsched.lock_take_row(name, capacity, kind);
    IF l.owner IS DISTINCT FROM checked THEN  -- it was new, or is so again
        PERFORM pgsched.check_name('lock', name, l.owner);
    END IF;
    IF session IS NULL THEN
        -- when the line is locked: it may lock other lines, and who has locked one must not wait for another
        PERFORM pgsched.session_open(token, ttl);
    END IF;
    PERFORM set_config('lock_timeout', patience, true);
    -- the session may have ended meanwhile; from now on its row stays until this transaction ends
    SELECT * INTO s FROM pgsched.sessions o WHERE o.token = coalesce(session, lock_acquire.token) FOR KEY SHARE;
    IF s.id IS NULL OR s.ended_at IS NOT NULL OR s.lease_until <= clock_timestamp() THEN
        PERFORM pgsched.raise_session_ended();
    END IF;
    lease_until := s.lease_until;

    SELECT * INTO mine FROM pgsched.lock_places p WHERE p.token = lock_acquire.token;
    IF mine.token IS NOT NULL AND (mine.lock, mine.session, mine.mode) IS DISTINCT FROM (name, s.id, wanted) THEN
        PERFORM pgsched.raise_bad_value('token: it was used for another lock, mode or session: take a new one', 'locks');
    ELSIF mine.left_at IS NOT NULL THEN
        RETURN;
    ELSIF mine.token IS NULL THEN
        alone := NOT EXISTS (SELECT FROM pgsched.lock_places p WHERE p.lock = lock_acquire.name);
        IF l.capacity IS DISTINCT FROM capacity THEN
            IF NOT alone THEN
                PERFORM pgsched.lock_settle(name);
                alone := NOT EXISTS (SELECT FROM pgsched.lock_places p WHERE p.lock = lock_acquire.name);
            END IF;
            IF NOT alone THEN
                PERFORM pgsched.raise_bad_value(format('capacity: "%s" is in use as %s', name, CASE WHEN l.capacity IS NULL
                    THEN 'a lock' ELSE format('a semaphore of %s: give this limit', l.capacity) END), 'locks');
            END IF;
        END IF;
        UPDATE pgsched.locks k SET last_place = k.last_place + 1, capacity = lock_acquire.capacity
        WHERE k.name = lock_acquire.name RETURNING * INTO l;
        INSERT INTO pgsched.lock_places AS p (lock, place, session, token, mode, note, since, give_up_at, fence, granted_at)
        SELECT lock_acquire.name, l.last_place, s.id, lock_acquire.token, wanted, lock_acquire.note, c.moment,
            CASE WHEN NOT alone THEN c.moment + wait END,
            CASE WHEN alone THEN nextval('pgsched.fences'::regclass) END, CASE WHEN alone THEN c.moment END
        FROM clock_timestamp() AS c(moment)
        RETURNING * INTO mine;
        PERFORM pgsched.check_room(l, s.owner, mine.number);
    END IF;
    IF mine.fence IS NULL THEN
        PERFORM pgsched.lock_settle(name, CASE WHEN alone IS NOT NULL THEN mine.place END);
        SELECT * INTO mine FROM pgsched.lock_places p WHERE p.token = lock_acquire.token;
    END IF;
    IF mine.fence IS NULL AND (wait = '0 s' OR mine.token IS NULL) THEN
        DELETE FROM pgsched.lock_places p WHERE p.token = lock_acquire.token;
        IF session IS NULL THEN
            PERFORM pgsched.session_drop(s.id);
            lease_until := NULL;
        END IF;
        RETURN;
    END IF;
    fence := mine.fence;
    IF fence IS NOT NULL THEN
        place := 1;
        RETURN;
    END IF;
    place := (SELECT count(*) + 1 FROM pgsched.lock_places p WHERE p.lock = lock_acquire.name AND p.place < mine.place AND p.fence IS NULL);
    look_at := CASE WHEN pgsched.lock_is_next(name, mine.place) THEN pgsched.lock_look_at(name) END;
END $$;

-- Gives a lock back, or leaves its line; the next in line has it at once. False: the token has no place (any more): if it had
-- been granted, it was lost.
CREATE FUNCTION pgsched.lock_release(name text, token uuid) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owner name;
    own_session bigint;
    mine record;
BEGIN
    SELECT s.owner, CASE WHEN s.token = p.token THEN s.id END INTO owner, own_session
    FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
    WHERE p.token = lock_release.token AND p.lock = lock_release.name;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pgsched.refuse_others('the session', owner) WHERE owner <> pgsched.caller();
    PERFORM pgsched.commit_durably();
    PERFORM FROM pgsched.lock_row(name);
    SELECT p.place, p.left_at IS NULL AND s.ended_at IS NULL AND s.lease_until > clock_timestamp() AS lives INTO mine
    FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
    WHERE p.token = lock_release.token AND p.lock = lock_release.name;
    IF mine.place IS NOT NULL THEN
        PERFORM pgsched.lock_leave(name, mine.place);
    END IF;
    PERFORM pgsched.lock_settle(name);
    IF own_session IS NOT NULL THEN
        PERFORM pgsched.session_drop(own_session);
    END IF;
    RETURN coalesce(mine.lives, false);
END $$;

-- Renews the session of a grant, for its ttl. Null: the lock is not held with this token (any more). It waits for no row but the
-- session's: renew a grant with this, and not with lock_acquire, which would get a lost lock anew, with another fence.
CREATE FUNCTION pgsched.lock_renew(name text, token uuid) RETURNS timestamptz
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.lease_until
    FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session CROSS JOIN LATERAL pgsched.session_renew(s.token) r
    WHERE p.token = lock_renew.token AND p.lock = lock_renew.name AND p.fence IS NOT NULL AND p.left_at IS NULL
$$;

-- How it stands with these places of a session, at most 1,000 of them: which are granted, and for the one that is the first of
-- those that wait in its line when to look again. It serves the lines in which the holder may have gone. A token that is
-- missing in the answer has no place any more. `positions`: say of each other one that waits which place it has in line, at
-- most 100: who cannot hear notifications looks the less often, the further behind he stands.
CREATE FUNCTION pgsched.session_leases(session uuid, tokens uuid[], positions boolean DEFAULT false)
RETURNS TABLE (token uuid, fence bigint, look_at timestamptz, "position" bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s pgsched.sessions;
    p pgsched.lock_places;
BEGIN
    SELECT * INTO s FROM pgsched.sessions o WHERE o.token = session_leases.session;
    PERFORM pgsched.refuse_others('the session', s.owner) WHERE s.owner <> pgsched.caller();
    IF cardinality(tokens) > 1000 THEN
        PERFORM pgsched.raise_bad_value('tokens: more than 1000', 'lock_places');
    END IF;
    IF s.ended_at IS NOT NULL OR s.lease_until <= clock_timestamp() THEN
        RETURN;
    END IF;
    -- in the order of the locks' names, in which other transactions lock their rows, too
    FOR p IN SELECT q.* FROM pgsched.lock_places q
        WHERE q.token = ANY (tokens) AND q.session = s.id AND q.left_at IS NULL ORDER BY q.lock, q.place LOOP
        token := p.token;
        look_at := NULL;
        "position" := NULL;
        IF p.fence IS NULL AND pgsched.lock_is_next(p.lock, p.place) THEN
            look_at := pgsched.lock_look_at(p.lock);
            -- whose lease ends later is let alone; so is a line in which somebody is at work, because a renewal may wait for this call
            IF coalesce(look_at, '-infinity') > clock_timestamp() + interval '0.2 s' THEN
                NULL;
            ELSIF NOT EXISTS (SELECT FROM pgsched.locks l WHERE l.name = p.lock FOR NO KEY UPDATE SKIP LOCKED) THEN
                look_at := clock_timestamp() + interval '0.1 s';
            ELSE
                PERFORM pgsched.commit_durably();
                PERFORM FROM pgsched.lock_row(p.lock);
                PERFORM pgsched.lock_settle(p.lock);
                look_at := pgsched.lock_look_at(p.lock);
                SELECT q.* INTO p FROM pgsched.lock_places q WHERE q.token = p.token;
                CONTINUE WHEN NOT FOUND;
            END IF;
        ELSIF p.fence IS NULL AND positions THEN
            "position" := pgsched.lock_position(p.lock, p.place);
        END IF;
        fence := p.fence;
        look_at := CASE WHEN fence IS NULL THEN look_at END;
        RETURN NEXT;
    END LOOP;
END $$;

-- Fails with PS410 unless this grant is held now. It is held until the transaction ends: nobody gets the lock before. So what
-- the transaction writes is written by the holder, or not at all. In REPEATABLE READ and SERIALIZABLE, what was lost after the
-- transaction's first statement fails with 40001: do not repeat such a transaction, but ask whether the lock is held.
CREATE FUNCTION pgsched.assert_lock(name text, fence bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- before the row is locked: whoever holds a grant's row keeps its lock from others
    PERFORM pgsched.refuse_others(format('lock "%s"', left(p.lock, 200)), s.owner)
    FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
    WHERE p.lock = assert_lock.name AND p.fence = assert_lock.fence AND s.owner <> pgsched.caller();
    PERFORM FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
    WHERE p.lock = assert_lock.name AND p.fence = assert_lock.fence AND p.left_at IS NULL
      AND s.ended_at IS NULL AND s.lease_until > clock_timestamp()
      AND (s.owner = pgsched.caller() OR pgsched.may_change(s.owner))  -- it may have been granted since the check above
    FOR KEY SHARE OF p;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'PS410', MESSAGE = format('lock "%s" is not held with fence %s: its lease has ended, or'
            ' it was given back or taken away; undo what you do under it', left(name, 200), coalesce(fence::text, 'null'));
    END IF;
END $$;

-- Takes a lock from its holders, or from one of them, and gives it on. For the owner of the name and for operators. A holder
-- sees it at its next renewal at the latest; until then only assert_lock stops it. Returns how many it was taken from.
CREATE FUNCTION pgsched.lock_break(name text, fence bigint DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l pgsched.locks;
    broken record;
    count bigint := 0;
BEGIN
    SELECT * INTO l FROM pgsched.locks k WHERE k.name = lock_break.name;
    PERFORM pgsched.check_name('lock', name, l.owner);
    PERFORM pgsched.commit_durably();
    PERFORM FROM pgsched.lock_row(name);
    FOR broken IN
        SELECT p.place, p.session, p.token, p.fence, s.name AS of_session
        FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
        WHERE p.lock = lock_break.name AND p.fence IS NOT NULL AND p.left_at IS NULL
          AND (lock_break.fence IS NULL OR p.fence = lock_break.fence)
        ORDER BY p.place
    LOOP
        count := count + 1;
        PERFORM pgsched.lock_leave(name, broken.place);
        INSERT INTO pgsched.lock_losses VALUES (broken.session, broken.fence) ON CONFLICT DO NOTHING;
        PERFORM pgsched.tell_session(broken.session, broken.token);
        PERFORM pgsched.note('broken', 'lock', name, jsonb_build_object('fence', broken.fence, 'session', broken.of_session));
    END LOOP;
    PERFORM pgsched.lock_settle(name);
    RETURN count;
END $$;

-- The line of a lock: holders, then those who wait, in their order; at most `most` of them. For readers (pgsched_viewer) and
-- for whoever may use the name.
CREATE FUNCTION pgsched.lock_line(name text, most integer DEFAULT 1000)
RETURNS TABLE (fence bigint, mode text, session text, owner name, note text, since timestamptz, granted_at timestamptz, lease_until timestamptz)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    SELECT p.fence, p.mode, s.name, s.owner, p.note, p.since, p.granted_at, s.lease_until
    FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
    WHERE p.lock = lock_line.name AND s.ended_at IS NULL AND s.lease_until > clock_timestamp() AND p.left_at IS NULL
      AND (p.fence IS NOT NULL OR p.give_up_at IS NULL OR p.give_up_at > clock_timestamp())
    ORDER BY p.place LIMIT greatest(0, least(most, 10000));
    -- last: what was read has an owner that this sees
    PERFORM pgsched.check_name('lock', lock_line.name, (SELECT l.owner FROM pgsched.locks l WHERE l.name = lock_line.name))
    WHERE NOT pgsched.reads_all();
END $$;
