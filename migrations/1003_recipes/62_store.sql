-- The store: read, write with a version, add, delete, list and watch. All changes under a root are made under the lock of its
-- row in pgsched.store_roots, and each changes that row: transactions of every isolation level follow one another.

-- The channel on which changes under a root are told.
CREATE FUNCTION pgsched.store_channel(root text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'pgsched_store_' || md5(root)
$$;

CREATE FUNCTION pgsched.store_root(key text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT split_part(key, '/', 1)
$$;

-- Refuses a key, or the beginning of keys, that is none or that the caller may not use. A granted prefix has at most 200
-- characters, so the first 200 of a key decide. A root goes with the prefix of the keys below it: whoever may write it can
-- make all those wait.
CREATE FUNCTION pgsched.check_key(key text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF key IS NULL OR length(key) NOT BETWEEN 1 AND 256 OR starts_with(key, '/') THEN
        PERFORM pgsched.raise_bad_value(format('key: expected 1 to 256 characters, the first of them no slash, got %s',
            coalesce('"' || left(key, 60) || '"', 'null')), 'store');
    END IF;
    PERFORM pgsched.check_name('key', left(CASE WHEN strpos(key, '/') = 0 THEN key || '/' ELSE key END, 200), (SELECT r.owner FROM pgsched.store_roots r WHERE r.root = pgsched.store_root(check_key.key)));
END $$;

CREATE FUNCTION pgsched.check_value(value jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF value IS NULL OR octet_length(value::text) > 65536 THEN
        PERFORM pgsched.raise_bad_value(format('value: expected JSON of at most 64 KiB, got %s',
            coalesce(octet_length(value::text) || ' bytes', 'null')), 'store');
    END IF;
END $$;

-- Is this session alive? Null, for a key that has none: yes.
CREATE FUNCTION pgsched.session_lives(session bigint) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT session IS NULL OR EXISTS (SELECT FROM pgsched.sessions s
        WHERE s.id = session_lives.session AND s.ended_at IS NULL AND s.lease_until > clock_timestamp())
$$;

-- The id of the session with this token; it is not deleted before the transaction ends. Null for null. Fails with PS410 where
-- it has ended. Called under the lock of a root: who ends a session never waits for one while it keeps the session's row.
CREATE FUNCTION pgsched.living_session(token uuid) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s pgsched.sessions;
BEGIN
    IF token IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.refuse_others('the session', o.owner) FROM pgsched.sessions o
    WHERE o.token = living_session.token AND o.owner <> pgsched.caller();
    SELECT * INTO s FROM pgsched.sessions o
    WHERE o.token = living_session.token AND o.ended_at IS NULL AND o.lease_until > clock_timestamp() FOR KEY SHARE;
    IF s.id IS NULL THEN
        PERFORM pgsched.raise_session_ended();
    END IF;
    RETURN s.id;
END $$;

-- Locks a root, making it where it is new, and removes the keys of sessions that have ended.
CREATE FUNCTION pgsched.store_lock(root text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.store_roots;
    number bigint;
    highest bigint;
BEGIN
    PERFORM pgsched.commit_durably();
    LOOP
        SELECT * INTO r FROM pgsched.store_roots o WHERE o.root = store_lock.root FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO pgsched.store_roots AS o (root, owner) VALUES (store_lock.root, pgsched.caller())
        ON CONFLICT DO NOTHING RETURNING o.number INTO number;
        IF number IS NOT NULL AND NOT pgsched.has_room('store_roots', pgsched.caller(), number, 10000) THEN
            PERFORM pgsched.raise_bad_value(format('key: role "%s" has 10000 first elements of keys, and may have no more: use'
                ' keys such as app/name', pgsched.caller()), 'store');
        END IF;
        -- a root with this name may have been deleted: the versions of the new one are higher
        SELECT v.last_value INTO highest FROM pgsched.store_versions v;
        UPDATE pgsched.store_roots o SET version = highest, kept_after = highest WHERE o.root = store_lock.root AND o.version = 0 AND highest > 0;
    END LOOP;
    IF r.look_at <= clock_timestamp() THEN
        PERFORM pgsched.store_forget(store_lock.root);
    END IF;
END $$;

-- Removes, under a root that the caller has locked, the keys of sessions that have ended, at most so many (null: all); ends
-- those that are not renewed. Returns how many keys it has removed.
CREATE FUNCTION pgsched.store_forget(root text, most bigint DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    removed bigint;
BEGIN
    -- a renewal that was sent in time and is not committed yet has locked the row
    UPDATE pgsched.sessions s SET ended_at = clock_timestamp() WHERE s.id IN (
        SELECT e.id FROM pgsched.sessions e
        WHERE e.id IN (SELECT k.session FROM pgsched.store k WHERE k.root = store_forget.root AND k.session IS NOT NULL)
          AND e.ended_at IS NULL AND e.lease_until <= clock_timestamp() FOR UPDATE SKIP LOCKED);
    removed := pgsched.store_drop(store_forget.root, ARRAY(
        SELECT s.id FROM pgsched.sessions s
        WHERE s.id IN (SELECT k.session FROM pgsched.store k WHERE k.root = store_forget.root AND k.session IS NOT NULL)
          AND s.ended_at IS NOT NULL), most);
    UPDATE pgsched.store_roots o SET look_at = (
        SELECT min(CASE WHEN s.ended_at IS NULL THEN s.lease_until ELSE s.ended_at END) FROM pgsched.sessions s
        WHERE s.id IN (SELECT k.session FROM pgsched.store k WHERE k.root = store_forget.root AND k.session IS NOT NULL))
    WHERE o.root = store_forget.root;
    RETURN removed;
END $$;

-- Gives the next `count` versions of a root that the caller has locked, and counts its keys; returns its row. The last 1,000
-- changes are kept, and up to 100 more, so that not each change deletes one.
CREATE FUNCTION pgsched.store_advance(root text, count bigint, added bigint) RETURNS pgsched.store_roots
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.store_roots;
BEGIN
    UPDATE pgsched.store_roots o SET version = o.version + count, keys = o.keys + added, changed_at = clock_timestamp(), kept_after = CASE
        WHEN o.version + count - o.kept_after >= 1100 THEN o.version + count - 1000 ELSE o.kept_after END
    WHERE o.root = store_advance.root RETURNING * INTO r;
    IF r.version - r.kept_after = 1000 THEN
        DELETE FROM pgsched.store_changes c WHERE c.root = r.root AND c.version <= r.kept_after;
    END IF;
    -- commits that notify follow one another, in the whole server; so nobody notifies who is not listened to
    PERFORM pgsched.notify(pgsched.store_channel(r.root), '') WHERE r.watched_until > clock_timestamp();
    RETURN r;
END $$;

-- Writes a key, or deletes it (value null), under a root that the caller has locked; returns the version of the change.
CREATE FUNCTION pgsched.store_write(root text, key text, value jsonb, session bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.store_roots;
    added integer := 0;
BEGIN
    IF value IS NULL THEN
        DELETE FROM pgsched.store k WHERE k.key = store_write.key;
        added := -1;
    ELSIF NOT EXISTS (SELECT FROM pgsched.store k WHERE k.key = store_write.key) THEN
        added := 1;
    END IF;
    r := pgsched.store_advance(root, 1, added);
    IF added = 1 AND r.keys > 100000 THEN
        PERFORM pgsched.raise_bad_value(format('key: there are 100000 keys under "%s", and can be no more', root), 'store');
    END IF;
    IF value IS NOT NULL THEN
        INSERT INTO pgsched.store AS k (key, root, value, version, revision, session)
        VALUES (store_write.key, store_write.root, store_write.value, r.version, 1, store_write.session)
        ON CONFLICT ON CONSTRAINT store_pkey DO UPDATE SET value = EXCLUDED.value, version = EXCLUDED.version,
            revision = k.revision + 1, session = EXCLUDED.session, changed_at = clock_timestamp();
    END IF;
    IF session IS NOT NULL THEN
        UPDATE pgsched.store_roots o SET look_at = s.lease_until FROM pgsched.sessions s
        WHERE o.root = r.root AND s.id = store_write.session AND (o.look_at IS NULL OR o.look_at > s.lease_until);
    END IF;
    INSERT INTO pgsched.store_changes (root, version, key, value) VALUES (r.root, r.version, store_write.key, store_write.value);
    IF value IS NULL THEN
        PERFORM pgsched.barriers_settle(r.root, ARRAY[key]);
    END IF;
    RETURN r.version;
END $$;

-- Deletes, under a root that the caller has locked, the keys of these sessions, at most so many (null: all), each with a version
-- of its own; returns how many it has deleted.
CREATE FUNCTION pgsched.store_drop(root text, sessions bigint[], most bigint DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.store_roots;
    gone text[];
    count bigint;
BEGIN
    IF cardinality(sessions) = 0 THEN
        RETURN 0;
    END IF;
    WITH deleted AS (
        DELETE FROM pgsched.store k WHERE k.key IN (
            SELECT f.key FROM pgsched.store f WHERE f.root = store_drop.root AND f.session = ANY (sessions) LIMIT most)
        RETURNING k.key)
    SELECT array_agg(d.key ORDER BY d.key) INTO gone FROM deleted d;
    count := coalesce(cardinality(gone), 0);
    IF count > 0 THEN
        r := pgsched.store_advance(store_drop.root, count, -count);
        INSERT INTO pgsched.store_changes (root, version, key)
        SELECT r.root, r.version - count + g.n, g.key FROM unnest(gone) WITH ORDINALITY AS g(key, n)
        WHERE r.version - count + g.n > r.kept_after;
        PERFORM pgsched.barriers_settle(store_drop.root, gone);
    END IF;
    RETURN count;
END $$;

-- Writes a key; returns the version, null if it was not written. `expected`: only if this is its version (0: only if there is
-- no such key). `session`: the key goes with it; null: it stays. A value has at most 64 KiB. Call it in a transaction of its
-- own, or late in one: until it is committed, all others wait who write under this root.
CREATE FUNCTION pgsched.kv_put(key text, value jsonb, expected bigint DEFAULT NULL, session uuid DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.check_key(key);
    PERFORM pgsched.check_value(value);
    IF expected > 0 AND NOT EXISTS (SELECT FROM pgsched.store k WHERE k.key = kv_put.key) THEN
        RETURN NULL;  -- so that it makes no root, which would belong to the caller
    END IF;
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);  -- its owner is certain now
    IF expected <> coalesce((SELECT k.version FROM pgsched.store k WHERE k.key = kv_put.key AND pgsched.session_lives(k.session)), 0) THEN
        RETURN NULL;
    END IF;
    RETURN pgsched.store_write(pgsched.store_root(key), key, value, pgsched.living_session(session));
END $$;

-- Deletes a key; returns the version of this change, null if there was no such key, or if `expected` is not its version.
CREATE FUNCTION pgsched.kv_delete(key text, expected bigint DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found bigint;
BEGIN
    PERFORM pgsched.check_key(key);
    IF NOT EXISTS (SELECT FROM pgsched.store k WHERE k.key = kv_delete.key) THEN
        RETURN NULL;  -- so that it makes no root, which would belong to the caller
    END IF;
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);
    SELECT k.version INTO found FROM pgsched.store k WHERE k.key = kv_delete.key AND pgsched.session_lives(k.session);
    IF found IS NULL OR expected <> found THEN
        RETURN NULL;
    END IF;
    RETURN pgsched.store_write(pgsched.store_root(key), key, NULL, NULL);
END $$;

-- Adds to a number and returns the sum; a key that does not exist counts as 0.
CREATE FUNCTION pgsched.kv_add(key text, amount numeric) RETURNS numeric
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found pgsched.store;
    total numeric;
BEGIN
    PERFORM pgsched.check_key(key);
    IF amount IS NULL OR amount::text IN ('NaN', 'Infinity', '-Infinity') OR length(amount::text) > 1000 THEN
        PERFORM pgsched.raise_bad_value(format('amount: expected a number, got %s', coalesce(left(amount::text, 60), 'null')), 'store');
    END IF;
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);
    SELECT * INTO found FROM pgsched.store k WHERE k.key = kv_add.key AND pgsched.session_lives(k.session);
    IF jsonb_typeof(found.value) <> 'number' THEN
        PERFORM pgsched.raise_bad_value(format('key: "%s" is no number, but of type %s', key, jsonb_typeof(found.value)), 'store');
    END IF;
    total := coalesce(found.value::numeric, 0) + amount;
    PERFORM pgsched.check_value(to_jsonb(total));
    PERFORM pgsched.store_write(pgsched.store_root(key), key, to_jsonb(total), found.session);
    RETURN total;
END $$;

CREATE FUNCTION pgsched.kv_get(key text, OUT value jsonb, OUT version bigint, OUT revision bigint, OUT changed_at timestamptz, OUT bound boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT k.value, k.version, k.revision, k.changed_at, k.session IS NOT NULL INTO value, version, revision, changed_at, bound
    FROM pgsched.store k WHERE k.key = kv_get.key AND pgsched.session_lives(k.session);
    IF NOT pgsched.reads_all() THEN
        PERFORM pgsched.check_key(key);  -- last: what was read has an owner that this sees
    END IF;
END $$;

-- The first text after all that begin with this prefix, in the order of collation "C". Null: there is none that can be named.
CREATE FUNCTION pgsched.after_prefix(prefix text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN length(prefix) = 0 THEN NULL
        WHEN c.code < 127 OR pg_char_to_encoding('UTF8') = pg_char_to_encoding(getdatabaseencoding()) AND c.code < 1114111
        THEN left(prefix, -1) || chr(CASE c.code WHEN 55295 THEN 57344 ELSE c.code + 1 END) END
    FROM (SELECT CASE WHEN octet_length(right(prefix, 1)) = 1 OR getdatabaseencoding() = 'UTF8' THEN ascii(right(prefix, 1)) ELSE 1114111 END) AS c(code)
$$;

-- Which keys with this prefix the caller may see: 'all'; 'some', where a part of it may be granted to others; or 'read': all,
-- and use none. Refuses those who may see none.
CREATE FUNCTION pgsched.check_prefix(prefix text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    granted boolean;
    mine boolean;
BEGIN
    SELECT count(*) > 0, coalesce(bool_or(pg_has_role(pgsched.caller(), o.oid, 'MEMBER')), false) INTO granted, mine
    FROM pgsched.name_grants g LEFT JOIN pg_roles o ON o.rolname = g.role WHERE starts_with(g.prefix, check_prefix.prefix);
    IF NOT mine AND pgsched.reads_all() AND NOT pgsched.may_use(left(prefix, 200),
        (SELECT r.owner FROM pgsched.store_roots r WHERE r.root = pgsched.store_root(prefix)))
    THEN
        RETURN 'read';
    ELSIF NOT mine THEN
        PERFORM pgsched.check_key(prefix);
    END IF;
    RETURN CASE WHEN granted AND NOT pgsched.reads_all() THEN 'some' ELSE 'all' END;
END $$;

-- The roots, beginning with this text, under which the caller may use keys: its own, and those with a granted prefix.
CREATE FUNCTION pgsched.roots_of_caller(prefix text) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    roles name[] := ARRAY(SELECT r.rolname FROM pg_roles r WHERE pg_has_role(pgsched.caller(), r.oid, 'MEMBER'));
BEGIN
    RETURN ARRAY(
        SELECT r.root FROM pgsched.store_roots r WHERE r.owner = ANY (roles) AND starts_with(r.root, roots_of_caller.prefix)
        UNION SELECT r.root FROM pgsched.name_grants g JOIN pgsched.store_roots r
            ON starts_with(r.root, g.prefix) OR starts_with(g.prefix, r.root || '/')
        WHERE g.role = ANY (roles) AND starts_with(r.root, roots_of_caller.prefix));
END $$;

-- The keys with this prefix, in their order, after a key; at most 1,000. A prefix without a slash: those of all roots that the
-- caller may use. Planned for the very prefix: a plan for any would read all keys after it.
CREATE FUNCTION pgsched.kv_list(prefix text DEFAULT '', after text DEFAULT '', most integer DEFAULT 1000)
RETURNS TABLE (key text, value jsonb, version bigint, revision bigint, changed_at timestamptz, bound boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    beyond text := pgsched.after_prefix(prefix);
    in_a_root boolean := strpos(prefix, '/') > 1;
    everywhere boolean := in_a_root OR pgsched.reads_all();  -- a prefix in a root has no keys of other roots
    partly boolean;
    roots text[];
BEGIN
    IF in_a_root THEN
        partly := pgsched.check_prefix(prefix) = 'some';
    ELSE
        partly := NOT everywhere AND EXISTS (SELECT FROM pgsched.name_grants);
        roots := CASE WHEN NOT everywhere THEN pgsched.roots_of_caller(prefix) END;
    END IF;
    RETURN QUERY
    SELECT k.key::text, k.value, k.version, k.revision, k.changed_at, k.session IS NOT NULL
    FROM pgsched.store k LEFT JOIN pgsched.sessions s ON s.id = k.session
    WHERE k.key >= prefix COLLATE "C" AND k.key > after COLLATE "C" AND (beyond IS NULL OR k.key < beyond COLLATE "C")
      AND starts_with(k.key, prefix) AND (everywhere OR k.root = ANY (roots))
      AND (NOT partly OR pgsched.may_use(left(k.key, 200), (SELECT o.owner FROM pgsched.store_roots o WHERE o.root = k.root)))
      AND (k.session IS NULL OR s.ended_at IS NULL AND s.lease_until > clock_timestamp())
    ORDER BY k.key LIMIT greatest(0, least(most, 1000));
    IF in_a_root THEN
        PERFORM pgsched.check_prefix(prefix);  -- once more: somebody may have made the root meanwhile
    END IF;
END $$;

-- The changes under the root of this prefix that are newer than `since`, and whose key begins with it, in their order; at most
-- `most` changes of the root are read. The first element of the prefix is a root, and not the beginning of several. Each row has
--   upto      the version that has been read: ask again with it. If there is no such change, one row without a key has it
--   skipped   changes after `since` are not kept any more, or the database was restored to an older state. There is one row
--             without a key: read the keys (kv_list), and then the changes after `upto`
--   look_at   when to ask again at the latest: a session to which keys are bound may end. Until then, and a little longer,
--             changes are told by a notification of the channel store_channel(root)
-- `since` null: no changes, only the present version. Call it in a transaction of its own: it may lock the root.
CREATE FUNCTION pgsched.kv_changes(prefix text, since bigint, most integer DEFAULT 1000)
RETURNS TABLE (upto bigint, skipped boolean, look_at timestamptz, version bigint, key text, value jsonb, changed_at timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    of_root text := pgsched.store_root(prefix);
    may_see text := pgsched.check_prefix(prefix);
    -- who may only read locks nothing
    may_write boolean := may_see <> 'read' AND current_setting('transaction_read_only') = 'off';
    o pgsched.store_roots;
BEGIN
    SELECT * INTO o FROM pgsched.store_roots r WHERE r.root = of_root;
    IF may_write AND (o.look_at <= clock_timestamp() OR o.watched_until < clock_timestamp() + interval '30 s') THEN
        PERFORM FROM pgsched.store_roots r WHERE r.root = of_root FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            PERFORM pgsched.store_lock(of_root);
            UPDATE pgsched.store_roots r SET watched_until = clock_timestamp() + interval '1 min' WHERE r.root = of_root;
        END IF;
    END IF;
    -- one statement, so that version and changes are those of one moment
    RETURN QUERY
    WITH seen AS MATERIALIZED (
        SELECT r.root, r.owner, coalesce(since NOT BETWEEN r.kept_after AND r.version, false) AS skips,
            CASE WHEN since BETWEEN r.kept_after AND r.version
                THEN least(r.version, since + greatest(1, least(most, 1000))) ELSE r.version END AS last,
            greatest(least(r.look_at, r.watched_until - interval '30 s'),
                clock_timestamp() + CASE WHEN may_write THEN interval '0.2 s' ELSE interval '1 s' END) AS next_look
        FROM pgsched.store_roots r WHERE r.root = of_root
    )
    SELECT coalesce(f.last, 0), coalesce(f.skips, since <> 0, false), coalesce(f.next_look, clock_timestamp() + interval '30 s'),
        x.version, x.key::text, x.value, x.changed_at
    FROM (SELECT) one LEFT JOIN seen f ON true LEFT JOIN LATERAL (
        SELECT c.version, c.key, c.value, c.changed_at FROM pgsched.store_changes c
        WHERE NOT f.skips AND c.root = f.root AND c.version > since AND c.version <= f.last AND starts_with(c.key, prefix)
          AND (may_see <> 'some' OR pgsched.may_use(left(c.key, 200), f.owner))
    ) x ON true
    ORDER BY x.version;
    IF o.root IS NULL THEN
        PERFORM pgsched.check_prefix(prefix);  -- once more: somebody may have made the root meanwhile
    END IF;
END $$;
