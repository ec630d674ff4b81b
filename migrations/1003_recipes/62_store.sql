-- The store: read, write with a version, add, delete, list and watch.

-- The channel on which changes under a root are told.
CREATE FUNCTION pgsched.store_channel(root text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'pgsched_store_' || md5(root)
$$;

CREATE FUNCTION pgsched.store_root(key text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT split_part(key, '/', 1)
$$;

-- Refuses a key that is none, or that the caller may not use; `is_prefix`: the beginning of keys, which may be a root alone.
CREATE FUNCTION pgsched.check_key(key text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF key IS NULL OR length(key) NOT BETWEEN 1 AND 256 OR starts_with(key, '/') THEN
        PERFORM pgsched.raise_bad_value(format('key: expected 1 to 256 characters, the first of them no slash, got "%s"', left(key, 60)), 'store');
    END IF;
    PERFORM pgsched.check_name('key', left(key, 200), (SELECT r.owner FROM pgsched.store_roots r WHERE r.root = pgsched.store_root(check_key.key)));
END $$;

-- Is this session alive? Null, for a key that has none: yes.
CREATE FUNCTION pgsched.session_lives(session bigint) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT session IS NULL OR EXISTS (SELECT FROM pgsched.sessions s
        WHERE s.id = session_lives.session AND s.ended_at IS NULL AND s.lease_until > clock_timestamp())
$$;

-- Locks a root, making it where it is new, and removes the keys of sessions that have ended.
CREATE FUNCTION pgsched.store_lock(root text) RETURNS pgsched.store_roots
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.store_roots;
    highest bigint;
BEGIN
    LOOP
        UPDATE pgsched.store_roots o SET keys = o.keys WHERE o.root = store_lock.root RETURNING * INTO r;
        EXIT WHEN FOUND;
        IF (SELECT count(*) FROM (SELECT FROM pgsched.store_roots o WHERE o.owner = pgsched.caller() LIMIT 10000) few) = 10000 THEN
            PERFORM pgsched.raise_bad_value(format('key: role "%s" has 10000 first elements of keys, and may have no more: use'
                ' keys such as app/name', pgsched.caller()), 'store');
        END IF;
        INSERT INTO pgsched.store_roots (root, owner) VALUES (store_lock.root, pgsched.caller()) ON CONFLICT DO NOTHING;
        -- a root with this name may have been deleted: the versions of the new one are higher
        SELECT v.last_value INTO highest FROM pgsched.store_versions v;
        UPDATE pgsched.store_roots o SET version = highest, kept_after = highest WHERE o.root = store_lock.root AND o.version = 0 AND highest > 0;
    END LOOP;
    PERFORM pgsched.store_forget(store_lock.root);
    SELECT * INTO r FROM pgsched.store_roots o WHERE o.root = store_lock.root;
    RETURN r;
END $$;

-- Removes, under a root that the caller has locked, the keys of sessions that have ended, at most so many (null: all); ends those
-- that are not renewed. Returns how many keys it has removed.
CREATE FUNCTION pgsched.store_forget(root text, most integer DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    gone text;
    removed integer := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM pgsched.store k WHERE k.root = store_forget.root AND k.session IS NOT NULL) THEN
        RETURN 0;
    END IF;
    UPDATE pgsched.sessions s SET ended_at = clock_timestamp() WHERE s.id IN (
        SELECT e.id FROM pgsched.sessions e
        WHERE e.id IN (SELECT k.session FROM pgsched.store k WHERE k.root = store_forget.root AND k.session IS NOT NULL)
          AND e.ended_at IS NULL AND e.lease_until <= clock_timestamp() FOR UPDATE SKIP LOCKED);
    FOR gone IN SELECT k.key FROM pgsched.store k JOIN pgsched.sessions s ON s.id = k.session
        WHERE k.root = store_forget.root AND k.session IS NOT NULL AND s.ended_at IS NOT NULL ORDER BY k.key LIMIT most LOOP
        PERFORM pgsched.store_write(store_forget.root, gone, NULL, NULL);
        removed := removed + 1;
    END LOOP;
    RETURN removed;
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
    UPDATE pgsched.store_roots o SET version = o.version + 1, keys = o.keys + added, changed_at = clock_timestamp()
    WHERE o.root = store_write.root RETURNING * INTO r;
    IF added = 1 AND r.keys > 100000 THEN
        PERFORM pgsched.raise_bad_value(format('key: there are 100000 keys under "%s", and can be no more', root), 'store');
    END IF;
    IF value IS NOT NULL THEN
        INSERT INTO pgsched.store AS k (key, root, value, version, revision, session)
        VALUES (store_write.key, store_write.root, store_write.value, r.version, 1, store_write.session)
        ON CONFLICT ON CONSTRAINT store_pkey DO UPDATE SET value = EXCLUDED.value, version = EXCLUDED.version,
            revision = k.revision + 1, session = EXCLUDED.session, changed_at = clock_timestamp();
    END IF;
    INSERT INTO pgsched.store_changes (root, version, key, value) VALUES (r.root, r.version, store_write.key, store_write.value);
    -- the last 1,000 changes are kept, and up to 100 more, so that not each change deletes one
    IF r.version - r.kept_after >= 1100 THEN
        DELETE FROM pgsched.store_changes c WHERE c.root = r.root AND c.version <= r.version - 1000;
        UPDATE pgsched.store_roots o SET kept_after = r.version - 1000 WHERE o.root = r.root;
    END IF;
    PERFORM pgsched.notify(pgsched.store_channel(r.root), '');
    RETURN r.version;
END $$;

-- Writes a key; returns the version, null if it was not written. `expected`: only if this is its version (0: only if there is
-- no such key). `session`: the key goes with it; null: it stays. A value has at most 64 KiB.
CREATE FUNCTION pgsched.kv_put(key text, value jsonb, expected bigint DEFAULT NULL, session uuid DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s pgsched.sessions;
BEGIN
    PERFORM pgsched.check_key(key);
    IF value IS NULL OR octet_length(value::text) > 65536 THEN
        PERFORM pgsched.raise_bad_value(format('value: expected JSON of at most 64 KiB, got %s', coalesce(octet_length(value::text) || ' bytes', 'null')), 'store');
    END IF;
    PERFORM pgsched.commit_durably();
    IF session IS NOT NULL THEN
        SELECT * INTO s FROM pgsched.sessions o WHERE o.token = kv_put.session;
        IF s.id IS NULL OR NOT pgsched.session_lives(s.id) THEN
            PERFORM pgsched.raise_session_ended();
        END IF;
        PERFORM pgsched.refuse_others('the session', s.owner) WHERE s.owner <> pgsched.caller();
    END IF;
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);  -- its owner is certain now
    IF expected IS DISTINCT FROM coalesce((SELECT k.version FROM pgsched.store k WHERE k.key = kv_put.key), 0) AND expected IS NOT NULL THEN
        RETURN NULL;
    END IF;
    RETURN pgsched.store_write(pgsched.store_root(key), key, value, s.id);
END $$;

-- Deletes a key; returns the version of this change, null if there was no such key, or if `expected` is not its version.
CREATE FUNCTION pgsched.kv_delete(key text, expected bigint DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found bigint;
BEGIN
    PERFORM pgsched.check_key(key);
    PERFORM pgsched.commit_durably();
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);
    SELECT k.version INTO found FROM pgsched.store k WHERE k.key = kv_delete.key;
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
    PERFORM pgsched.commit_durably();
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);
    SELECT * INTO found FROM pgsched.store k WHERE k.key = kv_add.key;
    IF jsonb_typeof(found.value) <> 'number' THEN
        PERFORM pgsched.raise_bad_value(format('key: "%s" is no number, but of type %s', key, jsonb_typeof(found.value)), 'store');
    END IF;
    total := coalesce(found.value::numeric, 0) + amount;
    PERFORM pgsched.store_write(pgsched.store_root(key), key, to_jsonb(total), found.session);
    RETURN total;
END $$;

CREATE FUNCTION pgsched.kv_get(key text, OUT value jsonb, OUT version bigint, OUT revision bigint, OUT changed_at timestamptz, OUT bound boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT pgsched.reads_all() THEN
        PERFORM pgsched.check_key(key);
    END IF;
    SELECT k.value, k.version, k.revision, k.changed_at, k.session IS NOT NULL INTO value, version, revision, changed_at, bound
    FROM pgsched.store k WHERE k.key = kv_get.key AND pgsched.session_lives(k.session);
END $$;

-- The first text after all that begin with this prefix, in the order of collation "C". Null: there is none that can be named.
CREATE FUNCTION pgsched.after_prefix(prefix text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN length(prefix) = 0 THEN NULL
        WHEN c.code < 127 OR pg_char_to_encoding('UTF8') = pg_char_to_encoding(getdatabaseencoding()) AND c.code < 1114111
        THEN left(prefix, -1) || chr(CASE c.code WHEN 55295 THEN 57344 ELSE c.code + 1 END) END
    FROM (SELECT CASE WHEN octet_length(right(prefix, 1)) = 1 OR getdatabaseencoding() = 'UTF8' THEN ascii(right(prefix, 1)) ELSE 1114111 END) AS c(code)
$$;

-- The keys with this prefix, in their order, after a key; at most 1,000. Without a prefix: those of all roots that the caller
-- may use.
CREATE FUNCTION pgsched.kv_list(prefix text DEFAULT '', after text DEFAULT '', most integer DEFAULT 1000)
RETURNS TABLE (key text, value jsonb, version bigint, revision bigint, changed_at timestamptz, bound boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    beyond text := pgsched.after_prefix(prefix);
    all_of_them boolean := pgsched.reads_all();
BEGIN
    RETURN QUERY
    SELECT k.key::text, k.value, k.version, k.revision, k.changed_at, k.session IS NOT NULL
    FROM pgsched.store k JOIN pgsched.store_roots r USING (root)
    WHERE k.key >= prefix COLLATE "C" AND k.key > after COLLATE "C" AND (beyond IS NULL OR k.key < beyond COLLATE "C")
      AND starts_with(k.key, prefix)
      AND pgsched.session_lives(k.session) AND (all_of_them OR pgsched.may_use(k.key, r.owner))
    ORDER BY k.key LIMIT least(most, 1000);
END $$;

-- The changes under the root of this prefix that are newer than `since`, and whose key begins with it, in their order; at most
-- `most` changes of the root are read. Each row has `upto`, the version that has been read: ask again with it. If there is
-- no such change, one row without a key has it. `skipped`: changes after `since` are not kept any more; then the rows are
-- all keys with the prefix, as they are now. `since` null: no changes, only the present version.
CREATE FUNCTION pgsched.kv_changes(prefix text, since bigint, most integer DEFAULT 1000)
RETURNS TABLE (upto bigint, skipped boolean, version bigint, key text, value jsonb, changed_at timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    of_root text := pgsched.store_root(prefix);
BEGIN
    IF NOT pgsched.reads_all() THEN
        PERFORM pgsched.check_key(prefix);
    END IF;
    IF EXISTS (SELECT FROM pgsched.store k WHERE k.root = of_root AND k.session IS NOT NULL AND NOT pgsched.session_lives(k.session))
        AND EXISTS (SELECT FROM pgsched.store_roots o WHERE o.root = of_root FOR NO KEY UPDATE SKIP LOCKED) THEN
        PERFORM pgsched.store_lock(of_root);
    END IF;
    -- one statement, so that version, changes and keys are those of one moment
    RETURN QUERY
    WITH r AS MATERIALIZED (
        SELECT o.root, coalesce(since < o.kept_after, false) AS skipped,
            CASE WHEN since >= o.kept_after THEN least(o.version, since + least(most, 1000)) ELSE o.version END AS upto
        FROM pgsched.store_roots o WHERE o.root = of_root
    )
    SELECT coalesce(r.upto, 0), coalesce(r.skipped, false), x.version, x.key::text, x.value, x.changed_at
    FROM (SELECT) one LEFT JOIN r ON true LEFT JOIN LATERAL (
        SELECT k.version, k.key, k.value, k.changed_at FROM pgsched.store k
        WHERE r.skipped AND k.root = r.root AND starts_with(k.key, prefix) AND pgsched.session_lives(k.session)
        UNION ALL
        SELECT c.version, c.key, c.value, c.changed_at FROM pgsched.store_changes c
        WHERE NOT r.skipped AND c.root = r.root AND c.version > since AND c.version <= r.upto AND starts_with(c.key, prefix)
    ) x ON true
    ORDER BY x.version;
END $$;
