-- The store as a tree of nodes, for programs that were written for ZooKeeper: the key app/locks is a node, and a child of app.
-- A node without a key of its own is there as long as there are keys below it. What is refused is an answer (`problem`), not
-- an error: no_node, exists, no_children (the parent is bound to a session), bad_version, not_empty.

-- Are there keys below this one? A key of a session that has ended is none.
CREATE FUNCTION pgsched.node_has_children(key text) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pgsched.store k
        WHERE k.key > (node_has_children.key || '/') COLLATE "C" AND k.key < (node_has_children.key || '0') COLLATE "C"
          AND pgsched.session_lives(k.session))
$$;

CREATE FUNCTION pgsched.node_exists(key text) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pgsched.store k WHERE k.key = node_exists.key AND pgsched.session_lives(k.session))
        OR pgsched.node_has_children(node_exists.key)
$$;

-- How many children a key has, and their names, if they are to be listed.
CREATE FUNCTION pgsched.node_children(key text, listed boolean, OUT names text[], OUT count bigint)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(c.name ORDER BY c.name) FILTER (WHERE listed), '{}'), count(*)
    FROM (SELECT DISTINCT split_part(substr(k.key, length(node_children.key) + 2), '/', 1) COLLATE "C" AS name FROM pgsched.store k
          WHERE k.key > (node_children.key || '/') COLLATE "C" AND k.key < (node_children.key || '0') COLLATE "C"
            AND pgsched.session_lives(k.session)) c
    WHERE c.name <> ''
$$;

-- A node: its value and figures, and the version of its root at that moment (`upto`). `is_there` false: there is none.
CREATE FUNCTION pgsched.node_read(key text, listed boolean DEFAULT false, OUT upto bigint, OUT is_there boolean, OUT value jsonb, OUT version bigint, OUT made_at bigint,
    OUT changed_in bigint, OUT created_at timestamptz, OUT changed_at timestamptz, OUT session bigint, OUT children_made bigint,
    OUT children text[], OUT child_count bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- one statement, so that all is of one moment
    SELECT coalesce(r.version, 0), k.key IS NOT NULL OR c.count > 0, k.value, coalesce(k.revision - 1, 0), coalesce(n.made_at, k.version, 0),
        coalesce(k.version, 0), k.created_at, k.changed_at, k.session, coalesce(n.children, 0),
        ARRAY(SELECT o.name FROM unnest(c.names) o(name)
              WHERE pgsched.reads_all() OR pgsched.may_use(left(node_read.key || '/' || o.name, 200), r.owner)), c.count
    INTO upto, is_there, value, version, made_at, changed_in, created_at, changed_at, session, children_made, children, child_count
    FROM (SELECT) one
    LEFT JOIN pgsched.store_roots r ON r.root = pgsched.store_root(node_read.key)
    LEFT JOIN pgsched.store k ON k.key = node_read.key AND pgsched.session_lives(k.session)
    LEFT JOIN pgsched.store_nodes n ON n.key = node_read.key
    CROSS JOIN pgsched.node_children(node_read.key, listed) c;
    IF NOT pgsched.reads_all() THEN
        PERFORM pgsched.check_key(key);  -- last: what was read has an owner that this sees
    END IF;
END $$;

-- The first elements of the keys that the caller may use.
CREATE FUNCTION pgsched.node_roots(OUT names text[])
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(r.root ORDER BY r.root), '{}') FROM pgsched.store_roots r
    WHERE (pgsched.reads_all() OR pgsched.may_use(r.root || '/', r.owner))
      AND EXISTS (SELECT FROM pgsched.store k WHERE k.root = r.root AND pgsched.session_lives(k.session))
$$;

-- Writes a key that does not exist yet, under a root that the caller has locked, and counts it at its parent.
CREATE FUNCTION pgsched.node_add(key text, value jsonb, session bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    version bigint := pgsched.store_write(pgsched.store_root(key), key, value, session);
    parent text := pgsched.node_parent(key);
BEGIN
    INSERT INTO pgsched.store_nodes AS n (key, made_at) VALUES (node_add.key, version)
    ON CONFLICT ON CONSTRAINT store_nodes_pkey DO UPDATE SET made_at = excluded.made_at, children = 0;  -- of a session that has ended
    INSERT INTO pgsched.store_nodes AS n (key, made_at, children)
    SELECT k.key, k.version, 1 FROM pgsched.store k WHERE k.key = parent
    ON CONFLICT ON CONSTRAINT store_nodes_pkey DO UPDATE SET children = n.children + 1;
END $$;

-- The key above this one. Null: there is none.
CREATE FUNCTION pgsched.node_parent(key text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN strpos(key, '/') > 0 THEN left(key, -strpos(reverse(key), '/')) END
$$;

-- Makes a node.
--   parent    the key above it; null: it is the first element of a path
--   name      its last element; with `sequence`, ten digits are added, the number of children made below the parent before
--   session   it goes with this session; null: it stays
--   makepath  make the nodes above it that do not exist
CREATE FUNCTION pgsched.node_create(parent text, name text, value jsonb, session uuid DEFAULT NULL, sequence boolean DEFAULT false,
    makepath boolean DEFAULT false, OUT problem text, OUT key text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    above text := '';
    element text;
    number bigint;
    of_session bigint;
BEGIN
    key := concat_ws('/', parent, name);
    PERFORM pgsched.check_key(key || CASE WHEN sequence THEN '0000000000' ELSE '' END);
    IF name IS NULL OR strpos(name, '/') > 0 OR name = '' AND NOT sequence OR parent IS NULL AND sequence OR parent ~ '//|/$' THEN
        PERFORM pgsched.raise_bad_value('name: expected one element of a path, and a parent for a sequence', 'store');
    END IF;
    PERFORM pgsched.check_value(value);
    IF NOT makepath AND parent IS NOT NULL AND NOT pgsched.node_exists(parent) THEN
        problem := 'no_node';  -- before there is a root, which would belong to the caller
        RETURN;
    END IF;
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);
    IF NOT makepath AND parent IS NOT NULL AND NOT pgsched.node_exists(parent) THEN
        problem := 'no_node';
        RETURN;
    END IF;
    FOREACH element IN ARRAY string_to_array(coalesce(parent, ''), '/') LOOP
        above := concat_ws('/', nullif(above, ''), element);
        SELECT k.session INTO of_session FROM pgsched.store k WHERE k.key = above;
        IF NOT FOUND THEN
            IF NOT pgsched.node_has_children(above) THEN  -- else it is there already, and only gets a key
                PERFORM pgsched.check_key(above);
            END IF;
            PERFORM pgsched.node_add(above, '""', NULL);
        ELSIF of_session IS NOT NULL THEN
            problem := 'no_children';
            RETURN;
        END IF;
    END LOOP;
    IF sequence THEN
        SELECT coalesce(max(n.children), 0) INTO number FROM pgsched.store_nodes n WHERE n.key = parent;
        LOOP
            key := concat_ws('/', parent, name || lpad(number::text, greatest(10, length(number::text)), '0'));
            EXIT WHEN NOT EXISTS (SELECT FROM pgsched.store k WHERE k.key = node_create.key);
            number := number + 1;
        END LOOP;
    ELSIF EXISTS (SELECT FROM pgsched.store k WHERE k.key = node_create.key AND pgsched.session_lives(k.session)) THEN
        problem := 'exists';
        RETURN;
    END IF;
    PERFORM pgsched.node_add(key, value, pgsched.living_session(session));
END $$;

-- Sets the value of a node. `expected`: only if this is its version, which counts from 0; null: whatever it is.
CREATE FUNCTION pgsched.node_set(key text, value jsonb, expected bigint DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found pgsched.store;
BEGIN
    PERFORM pgsched.check_key(key);
    PERFORM pgsched.check_value(value);
    IF NOT pgsched.node_exists(key) THEN
        RETURN 'no_node';
    END IF;
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);
    SELECT * INTO found FROM pgsched.store k WHERE k.key = node_set.key AND pgsched.session_lives(k.session);
    IF found.key IS NULL AND NOT pgsched.node_exists(key) THEN
        RETURN 'no_node';
    ELSIF expected <> coalesce(found.revision - 1, 0) THEN
        RETURN 'bad_version';
    ELSIF found.key IS NULL THEN
        PERFORM pgsched.node_add(key, '""', NULL);
    END IF;
    PERFORM pgsched.store_write(pgsched.store_root(key), key, value, found.session);
    RETURN NULL;
END $$;

-- Deletes a node that has no children. `expected`: as for node_set.
CREATE FUNCTION pgsched.node_delete(key text, expected bigint DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found pgsched.store;
BEGIN
    PERFORM pgsched.check_key(key);
    IF NOT pgsched.node_exists(key) THEN
        RETURN 'no_node';
    END IF;
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);
    SELECT * INTO found FROM pgsched.store k WHERE k.key = node_delete.key AND pgsched.session_lives(k.session);
    IF NOT pgsched.node_exists(key) THEN
        RETURN 'no_node';
    ELSIF expected <> coalesce(found.revision - 1, 0) THEN
        RETURN 'bad_version';
    ELSIF pgsched.node_has_children(key) THEN
        RETURN 'not_empty';
    END IF;
    PERFORM pgsched.store_write(pgsched.store_root(key), key, NULL, NULL);
    RETURN NULL;
END $$;

-- Deletes a node and all below it, the deepest first, at most 1,000 of them; returns how many. Call again until it is 0.
CREATE FUNCTION pgsched.node_prune(key text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one text;
    count bigint := 0;
BEGIN
    PERFORM pgsched.check_key(key);
    IF NOT pgsched.node_exists(key) THEN
        RETURN 0;
    END IF;
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);
    FOR one IN SELECT k.key FROM pgsched.store k
        WHERE k.key = node_prune.key OR k.key > (node_prune.key || '/') COLLATE "C" AND k.key < (node_prune.key || '0') COLLATE "C"
        ORDER BY k.key DESC LIMIT 1000
    LOOP
        PERFORM pgsched.check_key(one);  -- a part may be granted to others: then nothing is deleted
        PERFORM pgsched.store_write(pgsched.store_root(key), one, NULL, NULL);
        count := count + 1;
    END LOOP;
    RETURN count;
END $$;
