-- Sessions of processes that coordinate: opened, renewed and ended; and which names a role may use.

-- Commits are asynchronous in some sessions. A grant or renewal that a crash of the server can take back is none.
CREATE FUNCTION pgsched.commit_durably() RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') IN ('off', 'local')
$$;

-- May the caller use this name, which belongs to this role (null: to nobody yet)? A name with a granted prefix is for the
-- roles of all its grants; each other name for the role that used it first. Operators may use all.
CREATE FUNCTION pgsched.may_use(name text, owner name) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN NOT EXISTS (SELECT FROM pgsched.name_grants g WHERE starts_with(may_use.name, g.prefix))
            THEN may_use.owner IS NULL OR may_use.owner = pgsched.caller() OR pgsched.may_change(may_use.owner)
        ELSE pgsched.may_change(NULL) OR EXISTS (
            SELECT FROM pgsched.name_grants g JOIN pg_roles r ON r.rolname = g.role
            WHERE starts_with(may_use.name, g.prefix) AND pg_has_role(pgsched.caller(), r.oid, 'MEMBER')) END
$$;

-- Refuses a name that is none, or that the caller may not use.
CREATE FUNCTION pgsched.check_name(what text, name text, owner name) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF name IS NULL OR length(name) NOT BETWEEN 1 AND 200 THEN
        PERFORM pgsched.raise_bad_value(format('name: expected 1 to 200 characters, got %s', coalesce(length(name)::text, 'null')), 'locks');
    ELSIF NOT pgsched.may_use(name, owner) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = CASE
            WHEN EXISTS (SELECT FROM pgsched.name_grants g WHERE starts_with(check_name.name, g.prefix))
            THEN format('permission denied: %s "%s" is not granted to role "%s": an operator grants it (pgsched.grant_names)',
                        what, name, pgsched.caller())
            ELSE format('permission denied: %s "%s" belongs to the role that used it first, not to role "%s": take another'
                        ' name, or let an operator grant it to both (pgsched.grant_names)', what, name, pgsched.caller()) END;
    END IF;
END $$;

-- Only these roles may use names with this prefix; with grants of the same prefix to others, they too. Operators only.
CREATE FUNCTION pgsched.grant_names(prefix text, role name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.refuse_others(format('prefix "%s"', left(prefix, 200)), NULL);
    IF prefix IS NULL OR length(prefix) NOT BETWEEN 1 AND 200 THEN
        PERFORM pgsched.raise_bad_value('prefix: expected 1 to 200 characters', 'name_grants');
    ELSIF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
        PERFORM pgsched.raise_bad_value(format('role: there is no role "%s"%s', role,
            pgsched.did_you_mean(role, ARRAY(SELECT r.rolname::text FROM pg_roles r))), 'name_grants');
    END IF;
    INSERT INTO pgsched.name_grants VALUES (grant_names.prefix, grant_names.role) ON CONFLICT DO NOTHING;
    PERFORM pgsched.note('granted', 'names', grant_names.prefix, jsonb_build_object('role', grant_names.role));
END $$;

CREATE FUNCTION pgsched.revoke_names(prefix text, role name) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.refuse_others(format('prefix "%s"', left(prefix, 200)), NULL);
    DELETE FROM pgsched.name_grants g WHERE g.prefix = revoke_names.prefix AND g.role = revoke_names.role;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pgsched.note('revoked', 'names', revoke_names.prefix, jsonb_build_object('role', revoke_names.role));
    RETURN true;
END $$;

-- Opens a session, or renews the one with this token: a caller that got no answer asks again. Refused where it has ended.
-- A role may have 10,000 at a time. Each fiftieth one looks for those of the role that have ended.
CREATE FUNCTION pgsched.session_open(token uuid, ttl interval DEFAULT '30 s', name text DEFAULT NULL,
    OUT id bigint, OUT lease_until timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s pgsched.sessions;
    problem text := coalesce(
        CASE WHEN token IS NULL THEN 'token: must not be null' END,
        CASE WHEN ttl IS NULL OR ttl NOT BETWEEN '1 s' AND '1 day' THEN format('ttl: %s is not between 1 second and 1 day', ttl) END,
        CASE WHEN length(name) NOT BETWEEN 1 AND 200 THEN 'session: expected a name of 1 to 200 characters' END);
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'sessions');
    END IF;
    PERFORM pgsched.commit_durably();
    SELECT * INTO s FROM pgsched.sessions o WHERE o.token = session_open.token;
    IF s.id IS NULL THEN
        INSERT INTO pgsched.sessions AS o (token, name, owner, ttl, lease_until)
        VALUES (session_open.token, coalesce(session_open.name, nullif(current_setting('application_name'), ''), 'unnamed'),
                pgsched.caller(), session_open.ttl, clock_timestamp() + session_open.ttl)
        ON CONFLICT DO NOTHING RETURNING o.id, o.lease_until INTO id, lease_until;
        IF id IS NOT NULL THEN
            IF id % 50 = 0 OR NOT pgsched.has_room('sessions', pgsched.caller(), id, 10000) THEN
                PERFORM pgsched.sweep_sessions(100, pgsched.caller());
                IF NOT pgsched.has_room('sessions', pgsched.caller(), id, 10000) THEN
                    PERFORM pgsched.raise_bad_value(format('session: role "%s" has 10000 sessions, and may have no more', pgsched.caller()), 'sessions');
                END IF;
            END IF;
            RETURN;
        END IF;
        SELECT * INTO s FROM pgsched.sessions o WHERE o.token = session_open.token;
    END IF;
    id := s.id;
    SELECT r.lease_until INTO lease_until FROM pgsched.session_renew(session_open.token) r;
    IF lease_until IS NULL THEN
        PERFORM pgsched.raise_session_ended();
    END IF;
END $$;

CREATE FUNCTION pgsched.raise_session_ended() RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'PS410', MESSAGE = 'the session has ended: it was not renewed in time, or it was closed;'
        ' what it held is free for others; open a session with a new token';
END $$;

-- The session with this token, which the caller may use. Refused where it has ended, or is another role's.
CREATE FUNCTION pgsched.own_session(token uuid) RETURNS pgsched.sessions
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s pgsched.sessions;
BEGIN
    SELECT * INTO s FROM pgsched.sessions o WHERE o.token = own_session.token;
    PERFORM pgsched.refuse_others('the session', s.owner) WHERE s.owner <> pgsched.caller();
    IF s.id IS NULL OR s.ended_at IS NOT NULL OR s.lease_until <= clock_timestamp() THEN
        PERFORM pgsched.raise_session_ended();
    END IF;
    RETURN s;
END $$;

-- Renews a session for its ttl. Null: it has ended, and so have its leases. `losses`: how many grants somebody has taken
-- from it (lock_break). If there are more than before, session_leases says which places it still has. Only transactions with
-- the session's own token, and those that end it when its time is over, lock its row: a renewal waits for nobody else.
CREATE FUNCTION pgsched.session_renew(token uuid, OUT lease_until timestamptz, OUT losses bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    renewed bigint;
BEGIN
    PERFORM pgsched.commit_durably();
    PERFORM pgsched.refuse_others('the session', s.owner) FROM pgsched.sessions s
    WHERE s.token = session_renew.token AND s.owner <> pgsched.caller();
    UPDATE pgsched.sessions s SET lease_until = clock_timestamp() + s.ttl
    WHERE s.token = session_renew.token AND s.ended_at IS NULL AND s.lease_until > clock_timestamp()
    RETURNING s.id, s.lease_until INTO renewed, lease_until;
    SELECT count(*) INTO losses FROM pgsched.lock_losses l WHERE l.session = renewed;
END $$;

-- Deletes a session that has nothing any more. If somebody binds something to it just now, who has locked its row, it stays
-- until its time is over. One that has something is not locked: who breaks its lock notes that for it (lock_losses), and
-- would wait.
CREATE FUNCTION pgsched.session_drop(session bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pgsched.session_has_nothing(session) THEN
        PERFORM FROM pgsched.sessions s WHERE s.id = session_drop.session FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            DELETE FROM pgsched.sessions s WHERE s.id = session_drop.session AND pgsched.session_has_nothing(session);
        END IF;
    END IF;
END $$;

-- By indexes, whatever the statistics say: where few sessions have many places, a scan would be expected to find one soon.
CREATE FUNCTION pgsched.session_has_nothing(session bigint) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
    SELECT NOT EXISTS (SELECT FROM pgsched.lock_places p WHERE p.session = session_has_nothing.session)
        AND NOT EXISTS (SELECT FROM pgsched.store k WHERE k.session = session_has_nothing.session)
        AND NOT EXISTS (SELECT FROM pgsched.item_consumers c JOIN pgsched.items i ON i.queue = c.queue AND i.session = c.session
                        WHERE c.session = session_has_nothing.session)
$$;

-- Takes the places of these sessions, which have ended, out of their lines, and serves the lines; at most 1,000 lines. Never
-- waits: a line whose row is locked is left for the next time.
CREATE FUNCTION pgsched.leave_lines(sessions bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one text;
BEGIN
    FOR one IN SELECT DISTINCT p.lock FROM pgsched.lock_places p WHERE p.session = ANY (sessions) ORDER BY p.lock LIMIT 1000 LOOP
        CONTINUE WHEN NOT EXISTS (SELECT FROM pgsched.locks l WHERE l.name = one FOR NO KEY UPDATE SKIP LOCKED);
        PERFORM FROM pgsched.lock_row(one);
        PERFORM pgsched.lock_leave(one, p.place) FROM pgsched.lock_places p WHERE p.lock = one AND p.session = ANY (sessions);
        PERFORM pgsched.lock_settle(one);
    END LOOP;
END $$;

-- Ends a session at once: nothing that it has is held any more. Gives its locks to the next in line, at most 1,000 in a call,
-- and deletes its keys, those of at most 100 first elements. Returns how much is left: call again. What others have locked is given on when they are done. Null:
-- there is no such session.
CREATE FUNCTION pgsched.session_end(token uuid) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s pgsched.sessions;
    one text;
    left_over bigint;
BEGIN
    PERFORM pgsched.commit_durably();
    PERFORM pgsched.refuse_others('the session', o.owner) FROM pgsched.sessions o
    WHERE o.token = session_end.token AND o.owner <> pgsched.caller();
    UPDATE pgsched.sessions o SET ended_at = coalesce(o.ended_at, clock_timestamp()) WHERE o.token = session_end.token RETURNING * INTO s;
    IF s.id IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.leave_lines(ARRAY[s.id]);
    FOR one IN SELECT DISTINCT k.root FROM pgsched.store k WHERE k.session = s.id ORDER BY k.root LIMIT 100 LOOP
        CONTINUE WHEN NOT EXISTS (SELECT FROM pgsched.store_roots r WHERE r.root = one FOR NO KEY UPDATE SKIP LOCKED);
        PERFORM pgsched.store_lock(one);
        PERFORM pgsched.store_drop(one, ARRAY[s.id]);
    END LOOP;
    PERFORM pgsched.item_end_session(s.id);
    SELECT count(*) INTO left_over FROM pgsched.lock_places p WHERE p.session = s.id AND p.left_at IS NULL;
    left_over := left_over + (SELECT count(*) FROM pgsched.store k WHERE k.session = s.id);
    PERFORM pgsched.session_drop(s.id);
    RETURN left_over;
END $$;

-- Ends sessions that were not renewed, gives back what they had, and deletes them; at most so many, of this role, or of
-- all; of these ids, or any; and at most 1,000 locks and 1,000 keys in a call. Never waits: what somebody has locked is left for
-- the next time. Returns how many sessions it has dealt with.
CREATE FUNCTION pgsched.sweep_sessions(most integer, of_owner name DEFAULT NULL, ids bigint[] DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found bigint[];
    one text;
    dropped bigint := 0;
BEGIN
    PERFORM pgsched.commit_durably();
    found := ARRAY(
        SELECT s.id FROM pgsched.sessions s
        WHERE (of_owner IS NULL OR s.owner = of_owner) AND (ids IS NULL OR s.id = ANY (ids))
          AND (s.ended_at IS NOT NULL OR s.lease_until <= clock_timestamp())
        LIMIT most FOR NO KEY UPDATE SKIP LOCKED);
    IF cardinality(found) = 0 THEN
        RETURN 0;
    END IF;
    UPDATE pgsched.sessions s SET ended_at = clock_timestamp() WHERE s.id = ANY (found) AND s.ended_at IS NULL;
    PERFORM pgsched.leave_lines(found);
    FOR one IN SELECT DISTINCT k.root FROM pgsched.store k WHERE k.session = ANY (found) ORDER BY k.root LOOP
        CONTINUE WHEN NOT EXISTS (SELECT FROM pgsched.store_roots r WHERE r.root = one FOR NO KEY UPDATE SKIP LOCKED);
        dropped := dropped + pgsched.store_drop(one, found, 1000 - dropped);
        EXIT WHEN dropped = 1000;  -- the rest the next time
    END LOOP;
    PERFORM pgsched.session_drop(one_of_them) FROM unnest(found) AS f(one_of_them);
    RETURN cardinality(found);
END $$;

-- The backup that was restored may not know the last grants: the next ones get numbers that were never given. And it may know
-- others that were given back since: all sessions end.
CREATE FUNCTION pgsched.restored() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.refuse_others('the database', NULL);
    PERFORM setval('pgsched.fences'::regclass, nextval('pgsched.fences'::regclass) + 4294967296);
    PERFORM setval('pgsched.store_versions'::regclass, nextval('pgsched.store_versions'::regclass) + 4294967296);
    -- so that nobody takes a version that was given before the restore for one that is given after it
    UPDATE pgsched.store_roots r SET version = r.version + 4294967296, kept_after = r.version + 4294967296,
        look_at = least(r.look_at, clock_timestamp());
    UPDATE pgsched.sessions s SET ended_at = clock_timestamp() WHERE s.ended_at IS NULL;
    PERFORM pgsched.note('restored', 'database', current_database()::text, NULL);
END $$;

-- Whether the caller reads what belongs to others: where roles are in force, readers and who may change everything.
CREATE FUNCTION pgsched.reads_all() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pgsched.may_change(NULL) OR EXISTS (
        SELECT FROM pg_roles r WHERE r.rolname = 'pgsched_viewer' AND pg_has_role(pgsched.caller(), r.oid, 'MEMBER'))
$$;
