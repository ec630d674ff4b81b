-- Lists of locks, and the deletion of names that nobody uses any more.

-- The locks with this prefix that the caller may see, in the order of their names, after a name; at most 10,000.
--   only_used  only those that somebody holds or waits for
--   kind       only locks of this kind
-- Of each line the first 1,000 places are counted. `holder`, `fence`, `held_since`: the oldest grant. `waiting_since`: since when
-- the first of those that wait has done so.
CREATE FUNCTION pgsched.lock_list(prefix text DEFAULT '', after text DEFAULT '', most integer DEFAULT 1000, only_used boolean DEFAULT true,
    kind text DEFAULT NULL)
RETURNS TABLE (name text, owner name, kind_of text, capacity integer, holders bigint, waiting bigint, holder text, fence bigint,
    held_since timestamptz, lease_until timestamptz, waiting_since timestamptz, used_at timestamptz)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    beyond text := pgsched.after_prefix(prefix);
    all_of_them boolean := pgsched.reads_all();
    owners name[] := CASE WHEN NOT all_of_them THEN ARRAY(SELECT r.rolname FROM pg_roles r WHERE pgsched.may_change(r.rolname)) END;
BEGIN
    RETURN QUERY
    SELECT l.name::text, l.owner, l.kind, l.capacity, f.holders, f.waiting, o.holder, o.fence, o.granted_at, o.lease_until, f.waiting_since, l.used_at
    FROM pgsched.locks l CROSS JOIN LATERAL (
        SELECT count(p.fence) AS holders, count(*) FILTER (WHERE p.fence IS NULL) AS waiting,
            min(p.since) FILTER (WHERE p.fence IS NULL) AS waiting_since
        FROM (SELECT q.* FROM pgsched.lock_places q WHERE q.lock = l.name ORDER BY q.place LIMIT 1000) p
        JOIN pgsched.sessions s ON s.id = p.session
        WHERE s.ended_at IS NULL AND s.lease_until > clock_timestamp() AND p.left_at IS NULL
          AND (p.fence IS NOT NULL OR p.give_up_at IS NULL OR p.give_up_at > clock_timestamp())
    ) f LEFT JOIN LATERAL (
        SELECT s.name AS holder, p.fence, p.granted_at, s.lease_until
        FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
        WHERE p.lock = l.name AND p.fence IS NOT NULL AND s.ended_at IS NULL AND s.lease_until > clock_timestamp() AND p.left_at IS NULL
        ORDER BY p.fence LIMIT 1
    ) o ON f.holders > 0
    WHERE l.name >= prefix COLLATE "C" AND l.name > after COLLATE "C" AND (beyond IS NULL OR l.name < beyond COLLATE "C")
      AND starts_with(l.name, prefix)
      AND (lock_list.kind IS NULL OR l.kind = lock_list.kind)
      -- the places are read once: of unused names, which may be many, no line is read
      AND (NOT only_used OR l.name IN (SELECT p.lock FROM pgsched.lock_places p) AND f.holders + f.waiting > 0)
      AND (all_of_them OR CASE WHEN EXISTS (SELECT FROM pgsched.name_grants g WHERE starts_with(l.name, g.prefix))
           THEN pgsched.may_use(l.name, l.owner) ELSE l.owner = ANY (owners) END)
    ORDER BY l.name LIMIT greatest(0, least(most, 10000));
END $$;

-- Of the names of locks after this one, the next `most`: deletes those that nobody has used for 30 days, and nobody holds or waits
-- for. Returns the last name that it has read, null after the last of all.
CREATE FUNCTION pgsched.prune_locks(after text, most integer) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names text[] := ARRAY(SELECT l.name FROM pgsched.locks l WHERE l.name > after COLLATE "C" ORDER BY l.name LIMIT most);
BEGIN
    -- who asks for one meanwhile has locked its row, or has changed used_at
    DELETE FROM pgsched.locks l WHERE l.name = ANY (ARRAY(
        SELECT u.name FROM pgsched.locks u
        WHERE u.name = ANY (names) AND u.used_at < clock_timestamp() - interval '30 days'
          AND NOT EXISTS (SELECT FROM pgsched.lock_places p WHERE p.lock = u.name)
        FOR UPDATE SKIP LOCKED));
    RETURN CASE WHEN cardinality(names) = most THEN names[most] END;
END $$;

-- The same for the roots of the store: deletes those without keys that were not changed for 30 days. A root with such a name that
-- is made later begins with a higher version than this one had: who watches it misses no change.
CREATE FUNCTION pgsched.prune_roots(after text, most integer) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names text[] := ARRAY(SELECT r.root FROM pgsched.store_roots r WHERE r.root > after COLLATE "C" ORDER BY r.root LIMIT most);
    unused text[];
BEGIN
    unused := ARRAY(
        SELECT r.root FROM pgsched.store_roots r
        WHERE r.root = ANY (names) AND r.keys = 0 AND r.changed_at < clock_timestamp() - interval '30 days' FOR UPDATE SKIP LOCKED);
    IF cardinality(unused) > 0 THEN
        PERFORM setval('pgsched.store_versions'::regclass, greatest(
            (SELECT v.last_value FROM pgsched.store_versions v),
            (SELECT max(r.version) FROM pgsched.store_roots r WHERE r.root = ANY (unused))));
        DELETE FROM pgsched.store_roots r WHERE r.root = ANY (unused);
    END IF;
    RETURN CASE WHEN cardinality(names) = most THEN names[most] END;
END $$;
