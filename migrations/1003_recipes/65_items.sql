-- Item queues: put, get, consume, give back. A holder is a session: its items are handed out again when it has ended.

-- Each statement of these functions keeps the plan that is right for a long queue (plan_cache_mode): to plan it again takes
-- longer than to run it. What is called for each item calls few other functions, for the same reason.

-- The queue of this name, for this caller; it is made where it is new. Refuses a name that the caller may not use. The caller's
-- type gives all texts here the collation "C": without another one, no index on names would be used.
CREATE FUNCTION pgsched.item_queue_of(name text, caller name) RETURNS pgsched.item_queues
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    q pgsched.item_queues;
    problem text;
BEGIN
    SELECT * INTO q FROM pgsched.item_queues o WHERE o.name = item_queue_of.name COLLATE "default";
    IF q.owner = caller AND NOT EXISTS (SELECT FROM pgsched.name_grants g WHERE starts_with(item_queue_of.name, g.prefix)) THEN
        RETURN q;
    END IF;
    PERFORM pgsched.check_name('item queue', name, q.owner);
    IF q.id IS NOT NULL THEN
        IF pgsched.uses_by_grant(name, caller) AND NOT pgsched.uses_by_grant(name, q.owner) THEN
            -- dead items belong to the owner: it must be one of those for whom the name is now
            UPDATE pgsched.item_queues o SET owner = caller WHERE o.id = q.id RETURNING * INTO q;
        END IF;
        RETURN q;
    END IF;
    problem := pgsched.bad_text('name', name, 200);
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'item_queues');
    END IF;
    INSERT INTO pgsched.item_queues AS o (name, owner) VALUES (item_queue_of.name, caller)
    ON CONFLICT DO NOTHING RETURNING * INTO q;
    IF q.id IS NULL THEN
        SELECT * INTO q FROM pgsched.item_queues o WHERE o.name = item_queue_of.name COLLATE "default";
        PERFORM pgsched.check_name('item queue', name, q.owner);
    ELSIF NOT pgsched.has_room('item_queues', caller, q.id, 100000) THEN
        PERFORM pgsched.raise_bad_value(format('name: role "%s" has 100000 item queues, and may have no more', caller), 'item_queues');
    END IF;
    RETURN q;
END $$;

-- Is this role one of those to which a name with this prefix was granted?
CREATE FUNCTION pgsched.uses_by_grant(name text, role name) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM pgsched.name_grants g JOIN pg_roles r ON r.rolname = g.role JOIN pg_roles m ON m.rolname = uses_by_grant.role
        WHERE starts_with(uses_by_grant.name, g.prefix) AND pg_has_role(m.oid, r.oid, 'MEMBER'))
$$;

-- Tells those that have waited longest that there are items, at most so many sessions; and one more, picked at random: the others
-- may have stopped, and would be told first until their leases end.
CREATE FUNCTION pgsched.item_tell(queue bigint, most integer) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH waiting AS (
        SELECT c.session, c.waiting_since FROM pgsched.item_consumers c
        WHERE c.queue = item_tell.queue AND c.waiting_since IS NOT NULL ORDER BY c.waiting_since LIMIT 100)
    SELECT pgsched.notify('pgsched_session_' || told.session, '') FROM (
        (SELECT w.session FROM waiting w WHERE pgsched.session_lives(w.session) ORDER BY w.waiting_since LIMIT least(most, 20))
        UNION
        (SELECT r.session FROM (SELECT w.session FROM waiting w ORDER BY random() LIMIT 1) r WHERE pgsched.session_lives(r.session))) told
$$;

-- What is wrong with the value of an item. What is small is not deep: each level takes eight bytes.
CREATE FUNCTION pgsched.item_value_error(value jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN value IS NULL THEN 'item: must not be null'
        WHEN pg_column_size(value) > 1048576 THEN format('item: %s bytes, at most 1048576 are allowed', pg_column_size(value))
        WHEN jsonb_path_exists(value, 'strict $.**{201}') THEN 'item: nested more than 200 deep' END
$$;

-- Puts items into a queue, in their order; returns their ids. Items of a lower priority number are handed out first, those of
-- one priority in the order in which they were put, or became available. A queue with a max_depth (pgsched.queues) takes
-- no more than that, and says so with PS429.
CREATE FUNCTION pgsched.item_put_many(name text, items jsonb[], priority integer DEFAULT 100, delay interval DEFAULT '0')
RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_sort = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q pgsched.item_queues;
    deepest bigint;
    moment timestamptz;
    ids bigint[];
    problem text;
BEGIN
    IF (cardinality(items) <= 10000 AND array_ndims(items) IS DISTINCT FROM 2 AND priority BETWEEN 0 AND 999
        AND delay BETWEEN '0' AND '10 years') IS NOT TRUE THEN
        PERFORM pgsched.raise_bad_value(coalesce(
            CASE WHEN items IS NULL THEN 'items: must not be null'
                 WHEN cardinality(items) > 10000 THEN format('items: %s items, at most 10000 are allowed in a call', cardinality(items)) END,
            pgsched.out_of_range('priority', priority, 0, 999), pgsched.bad_interval('delay', delay, '0'),
            CASE WHEN delay IS NULL THEN 'delay: must not be null' ELSE 'items: expected an array of one dimension' END), 'items');
    END IF;
    SELECT pgsched.item_value_error(i.item) INTO problem FROM unnest(items) i(item)
    WHERE CASE WHEN pg_column_size(i.item) <= 1600 THEN false ELSE pgsched.item_value_error(i.item) IS NOT NULL END LIMIT 1;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'items');
    END IF;
    q := pgsched.item_queue_of(name, pgsched.caller());
    PERFORM pgsched.commit_durably();
    SELECT s.max_depth INTO deepest FROM pgsched.queues s WHERE s.name = q.name;
    IF deepest IS NOT NULL AND cardinality(items) > deepest - (
        SELECT count(*) FROM (SELECT FROM pgsched.items i WHERE i.queue = q.id AND i.session IS NULL
                              ORDER BY i.queue, i.priority LIMIT deepest) few) THEN
        RAISE EXCEPTION USING ERRCODE = 'PS429', MESSAGE = format('queue: item queue "%s" has no room for %s more: its max_depth is %s',
            q.name, cardinality(items), deepest), COLUMN = 'queue', TABLE = 'items', SCHEMA = 'pgsched';
    END IF;
    moment := clock_timestamp();
    WITH added AS (
        INSERT INTO pgsched.items AS i (queue, value, priority, put_at, available_at)
        SELECT q.id, g.item, item_put_many.priority, moment, moment + delay FROM unnest(items) WITH ORDINALITY g(item, n) ORDER BY g.n
        RETURNING i.id
    )
    SELECT coalesce(array_agg(a.id), '{}') INTO ids FROM added a;
    IF EXISTS (SELECT FROM pgsched.item_consumers c WHERE c.queue = q.id AND c.waiting_since IS NOT NULL) THEN
        PERFORM pgsched.item_tell(q.id, cardinality(ids));
    END IF;
    RETURN ids;
END $$;

-- Puts one item; returns its id.
CREATE FUNCTION pgsched.item_put(name text, item jsonb, priority integer DEFAULT 100, delay interval DEFAULT '0') RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT (pgsched.item_put_many(name, ARRAY[item], priority, delay))[1]
$$;

-- Makes an item that was handed out too often a dead run of kind `item`, which pgsched.retry puts back into its queue.
CREATE FUNCTION pgsched.item_bury(i pgsched.items, why text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run bigint;
BEGIN
    INSERT INTO pgsched.runs AS r (kind, queue, task, args, owner, priority, attempt, max_attempts, created_at, available_at, started_at,
        finished_at, state, phase, reason, error, checked)
    SELECT 'item', left(q.name, 100), q.name, jsonb_build_object('item', i.id, 'value', i.value, 'priority', i.priority), q.owner,
        least(i.priority, 9), i.attempt, i.max_attempts, i.put_at, i.available_at, i.held_at, clock_timestamp(), 'dead', 4 /* ended badly */,
        format('item %s was handed out %s times and not consumed', i.id, i.attempt), why, true
    FROM pgsched.item_queues q WHERE q.id = i.queue
    RETURNING r.id INTO run;
    INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, started_at, worker, error)
    VALUES (run, i.token, i.attempt, 'failed', i.held_at, (SELECT s.name FROM pgsched.sessions s WHERE s.id = i.session), why);
    DELETE FROM pgsched.items o WHERE o.id = i.id;
END $$;

-- Puts what was a dead run back into its queue, as a new item. The run goes.
CREATE FUNCTION pgsched.item_revive(r pgsched.runs) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    q pgsched.item_queues := pgsched.item_queue_of(r.task, pgsched.caller());
BEGIN
    INSERT INTO pgsched.items (queue, value, priority, put_at, available_at)
    VALUES (q.id, r.args -> 'value', (r.args ->> 'priority')::smallint, clock_timestamp(), clock_timestamp());
    DELETE FROM pgsched.attempts a WHERE a.run_id = r.id;
    DELETE FROM pgsched.runs o WHERE o.id = r.id;
    PERFORM pgsched.item_tell(q.id, 1);
    RETURN 'queued';
END $$;

-- Takes back what this session holds of a queue, at most 10,000 items; the caller has locked its row in item_consumers. What
-- its holder consumes in a transaction that goes on is left alone.
CREATE FUNCTION pgsched.item_take_back(queue bigint, session bigint, why text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    i pgsched.items;
BEGIN
    UPDATE pgsched.items o SET session = NULL, token = NULL, held_at = NULL, error = why WHERE o.id = ANY (ARRAY(
        SELECT h.id FROM pgsched.items h WHERE h.queue = item_take_back.queue AND h.session = item_take_back.session
          AND (h.max_attempts = 0 OR h.attempt < h.max_attempts) LIMIT 10000 FOR UPDATE SKIP LOCKED));
    FOR i IN SELECT o.* FROM pgsched.items o WHERE o.queue = item_take_back.queue AND o.session = item_take_back.session
        AND o.max_attempts > 0 AND o.attempt >= o.max_attempts LIMIT 1000 FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM pgsched.item_bury(i, why);
    END LOOP;
    DELETE FROM pgsched.item_consumers c WHERE c.queue = item_take_back.queue AND c.session = item_take_back.session
        AND NOT EXISTS (SELECT FROM pgsched.items o WHERE o.queue = c.queue AND o.session = c.session);
END $$;

-- Looks for items of a queue whose holder's session has ended, and takes them back. One at a time does it, and nobody waits for
-- that. An older snapshot would not see all that a session holds: then it is left to others.
CREATE FUNCTION pgsched.item_look(queue bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' OR NOT EXISTS (
        SELECT FROM pgsched.item_queues q WHERE q.id = item_look.queue FOR NO KEY UPDATE SKIP LOCKED) THEN
        RETURN;
    END IF;
    UPDATE pgsched.item_queues q SET looked_at = clock_timestamp() WHERE q.id = item_look.queue;
    FOR ended IN
        SELECT c.session FROM pgsched.item_consumers c LEFT JOIN pgsched.sessions s ON s.id = c.session
        WHERE c.queue = item_look.queue AND (s.id IS NULL OR s.ended_at IS NOT NULL OR s.lease_until <= clock_timestamp())
        ORDER BY c.session LIMIT 1000 FOR UPDATE OF c SKIP LOCKED
    LOOP
        -- a renewal that was sent in time and is not committed yet has locked the row
        UPDATE pgsched.sessions s SET ended_at = clock_timestamp() WHERE s.id = (
            SELECT e.id FROM pgsched.sessions e WHERE e.id = ended AND e.ended_at IS NULL AND e.lease_until <= clock_timestamp()
            FOR UPDATE SKIP LOCKED);
        IF NOT EXISTS (SELECT FROM pgsched.sessions s WHERE s.id = ended AND s.ended_at IS NULL) THEN
            PERFORM pgsched.item_take_back(queue, ended, 'the session of its holder ended before it was consumed');
        END IF;
    END LOOP;
END $$;

-- Takes back what a session holds that its process has ended; in session_end.
CREATE FUNCTION pgsched.item_end_session(session bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN;
    END IF;
    FOR one IN SELECT c.queue FROM pgsched.item_consumers c WHERE c.session = item_end_session.session
        ORDER BY c.queue LIMIT 1000 FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM pgsched.item_take_back(one, session, 'its holder ended before it was consumed');
        PERFORM pgsched.item_tell(one, 1);
    END LOOP;
END $$;

-- Hands out the first items of a queue, in their order; at most so many, and of those that are large fewer: 8 MiB in all. A
-- compressed value may be a hundred times as large as it is stored.
CREATE FUNCTION pgsched.item_take(queue bigint, session bigint, token uuid, most integer, max_attempts integer)
RETURNS SETOF pgsched.items
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_sort = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    level smallint := -1;
    chosen bigint[] := '{}';
    more bigint[];
    room bigint := 8388608;
BEGIN
    -- a priority at a time: those that are not available yet stand behind those that are, in each
    LOOP
        SELECT i.priority INTO level FROM pgsched.items i
        WHERE i.queue = item_take.queue AND i.session IS NULL AND i.priority > level ORDER BY i.priority LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF most = 1 THEN
            SELECT ARRAY[i.id] INTO more FROM pgsched.items i
            WHERE i.queue = item_take.queue AND i.session IS NULL AND i.priority = level AND i.available_at <= moment
            ORDER BY i.available_at, i.id LIMIT 1 FOR UPDATE SKIP LOCKED;
        ELSE
            SELECT array_agg(f.id), room - coalesce(sum(f.size), 0) INTO more, room FROM (
                SELECT p.id, p.size, sum(p.size) OVER w AS so_far, row_number() OVER w AS n
                FROM (SELECT i.id, i.available_at, CASE WHEN pg_column_compression(i.value) IS NULL THEN pg_column_size(i.value)
                          ELSE least(100 * pg_column_size(i.value), 1048576) END AS size FROM pgsched.items i
                      WHERE i.queue = item_take.queue AND i.session IS NULL AND i.priority = level AND i.available_at <= moment
                      ORDER BY i.available_at, i.id LIMIT most - cardinality(chosen) FOR UPDATE SKIP LOCKED) p
                WINDOW w AS (ORDER BY p.available_at, p.id ROWS UNBOUNDED PRECEDING)) f
            WHERE f.so_far <= room OR f.n = 1 AND chosen = '{}';
        END IF;
        chosen := chosen || more;
        EXIT WHEN cardinality(chosen) >= most OR room <= 0;
    END LOOP;
    IF chosen <> '{}' THEN
        RETURN QUERY
        UPDATE pgsched.items i SET session = item_take.session, token = item_take.token, held_at = moment,
            attempt = i.attempt + 1, max_attempts = item_take.max_attempts
        WHERE i.id = ANY (chosen) RETURNING i.*;
    END IF;
END $$;

-- Gets items of a queue, with a token that the caller has chosen; asked again with it, the answer is the same.
--   session       the session that holds them. Null: one of its own, which has the same token and lasts for `hold`
--   most          how many at most, to 1,000; 8 MiB in all
--   max_attempts  an item that comes back when it was handed out so often becomes a dead run. 0: never
--   wait          where there is none, tell the session when there may be one: by a notification of the channel
--                 pgsched_session_N, where N is its id
-- Returns the items; where there is none, one row without an id. look_at: when to look again at the latest, though nothing
-- was told; null: with the heartbeat. Call it in a transaction of its own.
CREATE FUNCTION pgsched.item_get(name text, token uuid, session uuid DEFAULT NULL, hold interval DEFAULT '30 s', most integer DEFAULT 1,
    max_attempts integer DEFAULT 0, wait boolean DEFAULT false)
RETURNS TABLE (id bigint, value jsonb, priority smallint, attempt integer, put_at timestamptz, look_at timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    me name := pgsched.caller();
    q pgsched.item_queues;
    s pgsched.sessions;
    waits timestamptz;
    got bigint;
BEGIN
    IF (token IS NOT NULL AND most BETWEEN 1 AND 1000 AND max_attempts BETWEEN 0 AND 1000000 AND (session IS NOT NULL OR NOT wait))
        IS NOT TRUE THEN
        PERFORM pgsched.raise_bad_value(coalesce(CASE WHEN token IS NULL THEN 'token: must not be null' END,
            pgsched.out_of_range('most', most, 1, 1000), pgsched.out_of_range('max_attempts', max_attempts, 0, 1000000),
            'wait: it needs a session'), 'items');
    END IF;
    q := pgsched.item_queue_of(name, me);
    IF session IS NULL THEN
        PERFORM pgsched.session_open(token, hold);
    END IF;
    SELECT * INTO s FROM pgsched.sessions o WHERE o.token = coalesce(item_get.session, item_get.token);
    IF s.owner <> me THEN
        PERFORM pgsched.refuse_others('the session', s.owner);
    END IF;
    PERFORM pgsched.commit_durably();
    -- it is kept, so that what is held now is found when the session has ended; then it must still live
    SELECT c.waiting_since INTO waits FROM pgsched.item_consumers c WHERE c.queue = q.id AND c.session = s.id FOR KEY SHARE;
    IF NOT FOUND AND s.id IS NOT NULL THEN
        INSERT INTO pgsched.item_consumers AS c (queue, session) VALUES (q.id, s.id)
        ON CONFLICT (queue, session) DO UPDATE SET session = excluded.session RETURNING c.waiting_since INTO waits;
    END IF;
    IF NOT EXISTS (SELECT FROM pgsched.sessions o WHERE o.id = s.id AND o.ended_at IS NULL AND o.lease_until > clock_timestamp()) THEN
        PERFORM pgsched.raise_session_ended();
    END IF;

    RETURN QUERY SELECT i.id, i.value, i.priority, i.attempt, i.put_at, NULL::timestamptz FROM pgsched.items i
        WHERE i.queue = q.id AND i.session = s.id AND i.token = item_get.token ORDER BY i.priority, i.available_at, i.id;
    GET DIAGNOSTICS got = ROW_COUNT;
    IF got = 0 AND NOT EXISTS (SELECT FROM pgsched.pauses p WHERE (p.what, p.name) IN (('all', ''), ('queue', q.name))
                               AND coalesce(p.resume_at > clock_timestamp(), true)) THEN
        IF q.looked_at NOT BETWEEN clock_timestamp() - interval '1 s' AND clock_timestamp() + interval '1 min' THEN  -- the clock may have gone back
            PERFORM pgsched.item_look(q.id);
        END IF;
        RETURN QUERY SELECT i.id, i.value, i.priority, i.attempt, i.put_at, NULL::timestamptz
            FROM pgsched.item_take(q.id, s.id, item_get.token, most, max_attempts) i ORDER BY i.priority, i.available_at, i.id;
        GET DIAGNOSTICS got = ROW_COUNT;
        IF got = 0 AND q.looked_at BETWEEN clock_timestamp() - interval '1 s' AND clock_timestamp() - interval '0.2 s' THEN
            PERFORM pgsched.item_look(q.id);
            RETURN QUERY SELECT i.id, i.value, i.priority, i.attempt, i.put_at, NULL::timestamptz
                FROM pgsched.item_take(q.id, s.id, item_get.token, most, max_attempts) i ORDER BY i.priority, i.available_at, i.id;
            GET DIAGNOSTICS got = ROW_COUNT;
        END IF;
    END IF;
    IF got > 0 THEN
        IF waits IS NOT NULL THEN
            UPDATE pgsched.item_consumers c SET waiting_since = NULL WHERE c.queue = q.id AND c.session = s.id;
        END IF;
        IF EXISTS (SELECT FROM pgsched.item_consumers c WHERE c.queue = q.id AND c.waiting_since IS NOT NULL) THEN
            PERFORM pgsched.item_tell_of_rest(q.id);
        END IF;
        RETURN;
    END IF;
    IF session IS NULL THEN
        -- its own session, on which something else may hang
        DELETE FROM pgsched.item_consumers c WHERE c.queue = q.id AND c.session = s.id
            AND NOT EXISTS (SELECT FROM pgsched.items i WHERE i.queue = c.queue AND i.session = c.session);
        PERFORM pgsched.session_drop(s.id);
    ELSIF wait AND waits IS NULL THEN
        UPDATE pgsched.item_consumers c SET waiting_since = clock_timestamp() WHERE c.queue = q.id AND c.session = s.id;
    END IF;
    RETURN QUERY SELECT NULL::bigint, NULL::jsonb, NULL::smallint, NULL::integer, NULL::timestamptz,
        CASE WHEN wait THEN pgsched.item_look_at(q.id, s.id) END;
END $$;

-- Tells one more of those that wait, if there is an item for it: so each that is told tells the next, and none tells all.
CREATE FUNCTION pgsched.item_tell_of_rest(queue bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
    IF EXISTS (SELECT FROM pgsched.items i WHERE i.queue = item_tell_of_rest.queue AND i.session IS NULL) THEN
        PERFORM pgsched.item_tell(queue, 1);
    END IF;
END $$;

-- When the one that has waited longest is to look again: when the next item becomes available, or the lease of a holder ends.
-- The others look with their heartbeat; null for them.
CREATE FUNCTION pgsched.item_look_at(queue bigint, session bigint) RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_sort = off AS $$
DECLARE
    level smallint := -1;
    soonest timestamptz;
    next timestamptz;
BEGIN
    IF session <> (SELECT c.session FROM pgsched.item_consumers c WHERE c.queue = item_look_at.queue AND c.waiting_since IS NOT NULL
                   ORDER BY c.waiting_since LIMIT 1) THEN
        RETURN NULL;
    END IF;
    LOOP
        SELECT i.priority, i.available_at INTO level, next FROM pgsched.items i
        WHERE i.queue = item_look_at.queue AND i.session IS NULL AND i.priority > level ORDER BY i.priority, i.available_at LIMIT 1;
        EXIT WHEN NOT FOUND;
        soonest := least(soonest, next);
    END LOOP;
    SELECT least(soonest, min(coalesce(s.ended_at, s.lease_until))) INTO soonest
    FROM pgsched.item_consumers c JOIN pgsched.sessions s ON s.id = c.session
    WHERE c.queue = item_look_at.queue AND c.session <> item_look_at.session
      AND EXISTS (SELECT FROM pgsched.items i WHERE i.queue = c.queue AND i.session = c.session);
    -- what is due and was not got is locked now
    RETURN CASE WHEN soonest <= clock_timestamp() THEN clock_timestamp() + interval '0.2 s' ELSE soonest END;
END $$;

-- Ends those of these sessions that have nothing any more; each was made for one item_get.
CREATE FUNCTION pgsched.item_end_own_sessions(sessions bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one bigint;
BEGIN
    FOREACH one IN ARRAY sessions LOOP
        PERFORM pgsched.session_drop(one);
        DELETE FROM pgsched.item_consumers c WHERE c.session = one AND NOT EXISTS (SELECT FROM pgsched.sessions s WHERE s.id = one);
    END LOOP;
END $$;

-- Their holder says, with the token of each, that items are done: they are deleted; at most 10,000. Returns the ids of those
-- that it held. One is not held any more if the session has ended, or if it was given back. With the session, asked
-- again, the answer is the same.
CREATE FUNCTION pgsched.item_consume_many(ids bigint[], tokens uuid[], session uuid DEFAULT NULL) RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    me name := pgsched.caller();
    done bigint[];
    own bigint[];
BEGIN
    IF cardinality(ids) > 10000 THEN
        PERFORM pgsched.raise_bad_value(format('ids: %s items, at most 10000 are allowed in a call', cardinality(ids)), 'items');
    END IF;
    PERFORM pgsched.commit_durably();
    WITH gone AS (
        DELETE FROM pgsched.items i USING unnest(ids, tokens) g(id, token), pgsched.sessions s
        WHERE i.id = g.id AND i.token = g.token AND s.id = i.session AND s.owner = me
          AND s.ended_at IS NULL AND s.lease_until > clock_timestamp()
        RETURNING i.id, CASE WHEN s.token = i.token THEN s.id END AS own
    )
    SELECT coalesce(array_agg(e.id), '{}'), array_agg(e.own) FILTER (WHERE e.own IS NOT NULL) INTO done, own FROM gone e;
    IF own IS NOT NULL THEN
        PERFORM pgsched.item_end_own_sessions(own);
    END IF;
    IF session IS NOT NULL AND cardinality(done) < cardinality(ids) AND pgsched.session_lives(coalesce((
        SELECT s.id FROM pgsched.sessions s WHERE s.token = session AND s.owner = me), 0)) THEN
        -- an item that is gone while the session of its holder lives was consumed by it, and the answer was lost
        done := done || ARRAY(SELECT g.id FROM unnest(ids) g(id)
            WHERE g.id <> ALL (done) AND NOT EXISTS (SELECT FROM pgsched.items i WHERE i.id = g.id));
    END IF;
    RETURN done;
END $$;

-- The same for one item. False: it is not held any more.
CREATE FUNCTION pgsched.item_consume(id bigint, token uuid, session uuid DEFAULT NULL) RETURNS boolean
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT id = ANY (pgsched.item_consume_many(ARRAY[id], ARRAY[token], session))
$$;

-- Its holder puts an item back into the line, at its place; or to be handed out after a delay. Without an error it does not
-- count as an attempt; with one it does, and may have been the last one. False: it is not held any more.
CREATE FUNCTION pgsched.item_give_back(id bigint, token uuid, delay interval DEFAULT '0', error text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    i pgsched.items;
    s pgsched.sessions;
    why text := left(item_give_back.error, 10000);
    problem text := coalesce(CASE WHEN delay IS NULL THEN 'delay: must not be null' END, pgsched.bad_interval('delay', delay, '0'));
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'items');
    END IF;
    PERFORM pgsched.commit_durably();
    SELECT o.* INTO i FROM pgsched.items o WHERE o.id = item_give_back.id AND o.token = item_give_back.token AND EXISTS (
        SELECT FROM pgsched.sessions e WHERE e.id = o.session AND e.owner = pgsched.caller()) FOR NO KEY UPDATE;
    SELECT * INTO s FROM pgsched.sessions e WHERE e.id = i.session;
    IF i.id IS NULL OR NOT pgsched.session_lives(s.id) THEN
        RETURN false;
    ELSIF why IS NOT NULL AND i.max_attempts > 0 AND i.attempt >= i.max_attempts THEN
        PERFORM pgsched.item_bury(i, why);
    ELSE
        UPDATE pgsched.items o SET session = NULL, token = NULL, held_at = NULL, error = coalesce(why, o.error),
            attempt = o.attempt - CASE WHEN why IS NULL THEN 1 ELSE 0 END,
            available_at = CASE WHEN delay > '0' THEN clock_timestamp() + delay ELSE o.available_at END
        WHERE o.id = i.id;
        PERFORM pgsched.item_tell(i.queue, 1);
    END IF;
    IF s.token = i.token THEN
        PERFORM pgsched.item_end_own_sessions(ARRAY[s.id]);
    END IF;
    RETURN true;
END $$;

-- Renews the session of the holder of an item; returns when it ends unless it is renewed again. Null: it is not held any more.
CREATE FUNCTION pgsched.item_extend(id bigint, token uuid) RETURNS timestamptz
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.lease_until FROM pgsched.items i JOIN pgsched.sessions s ON s.id = i.session AND s.owner = pgsched.caller()
    CROSS JOIN LATERAL pgsched.session_renew(s.token) r
    WHERE i.id = item_extend.id AND i.token = item_extend.token
$$;

-- A session waits no longer for items of a queue; what it got with this token goes back, uncounted, because nobody knows of it.
CREATE FUNCTION pgsched.item_leave(name text, token uuid, session uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    left_queue bigint := (SELECT q.id FROM pgsched.item_queues q WHERE q.name = item_leave.name);
    leaver bigint := (SELECT s.id FROM pgsched.sessions s WHERE s.token = item_leave.session AND s.owner = pgsched.caller());
BEGIN
    IF left_queue IS NULL OR leaver IS NULL THEN
        RETURN;
    END IF;
    PERFORM pgsched.commit_durably();
    -- items first: who consumes one locks it, and then the row of the consumer
    PERFORM pgsched.item_give_back(i.id, i.token) FROM pgsched.items i
    WHERE i.queue = left_queue AND i.session = leaver AND i.token = item_leave.token;
    UPDATE pgsched.item_consumers c SET waiting_since = NULL
    WHERE c.queue = left_queue AND c.session = leaver AND c.waiting_since IS NOT NULL;
    -- it may have been told of an item that it will not get
    PERFORM pgsched.item_tell_of_rest(left_queue);
END $$;

-- How many items of a queue wait and may be got now, how many become available later, and how many are held.
CREATE FUNCTION pgsched.item_counts(name text, OUT ready bigint, OUT later bigint, OUT taken bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    q pgsched.item_queues;
BEGIN
    SELECT * INTO q FROM pgsched.item_queues o WHERE o.name = item_counts.name;
    IF NOT pgsched.reads_all() THEN
        PERFORM pgsched.check_name('item queue', item_counts.name, q.owner);
    END IF;
    SELECT count(*) FILTER (WHERE i.available_at <= clock_timestamp()), count(*) FILTER (WHERE i.available_at > clock_timestamp())
    INTO ready, later FROM pgsched.items i WHERE i.queue = q.id AND i.session IS NULL;
    SELECT count(*) INTO taken FROM pgsched.items i WHERE i.queue = q.id AND i.session IS NOT NULL;
END $$;

COMMENT ON FUNCTION pgsched.item_put(text, jsonb, integer, interval) IS 'Puts an item into a queue; returns its id.';
COMMENT ON FUNCTION pgsched.item_get(text, uuid, uuid, interval, integer, integer, boolean) IS
    'Gets items of a queue and holds them until they are consumed, or the session ends. The token is the caller''s choice.';
COMMENT ON FUNCTION pgsched.item_consume(bigint, uuid, uuid) IS 'The holder of an item is done with it: it is deleted. False: it is not held any more.';
COMMENT ON FUNCTION pgsched.item_give_back(bigint, uuid, interval, text) IS 'The holder of an item puts it back into the line. False: it is not held any more.';
COMMENT ON FUNCTION pgsched.item_extend(bigint, uuid) IS 'Renews the session of the holder of an item. NULL: it is not held any more.';
