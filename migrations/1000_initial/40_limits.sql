-- Limits are rows that people change with plain SQL; the leader reads them anew for each decision.
--
-- A run that has a concurrency_key, or whose queue is limited, is born `waiting` with ready_at: only limits hold it, and
-- the leader lets it go (pgsched/leader/admission.py). It goes back to `waiting`, and never to `queued`, whenever it
-- becomes claimable again; ready_at stays, so that it keeps its place. Whoever lets a run go that something else held (an
-- overlap policy, another run, a later time) asks pgsched.is_limited first.

-- The bit of a queue in pgsched.gated_queues. runs_before_insert and is_plain say the same in place of this call.
CREATE FUNCTION pgsched.queue_bit(queue text) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT 1::bigint << mod(hashtext(queue) & 2147483647, 61)
$$;

-- Whoever sets something for a queue sets its bit first; two at once would lose one without the lock. What is queued when
-- it gets its first limit may be more than that allows: it is not claimed until the leader has looked.
CREATE FUNCTION pgsched.queues_gate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('pgsched.gated_queues', 0));
    PERFORM setval('pgsched.gated_queues',
                   coalesce(pg_sequence_last_value('pgsched.gated_queues'), 0) | pgsched.queue_bit(NEW.name));
    NEW.applied_at := NULL;
    INSERT INTO pgsched.pauses (what, name, reason)
    SELECT 'limit', NEW.name, 'its first limit is being applied'
    WHERE (NEW.concurrency_limit IS NOT NULL OR NEW.rate IS NOT NULL OR NEW.fair OR NEW.ageing IS NOT NULL)
      AND NOT EXISTS (SELECT FROM pgsched.queues q WHERE q.name = NEW.name AND q.limited)
    ON CONFLICT (what, name) DO NOTHING;
    PERFORM pg_notify('pgsched_leader', 'limits');
    RETURN NEW;
END $$;

-- Takes out the bits of queues that nothing is set for any more, unless somebody is just changing the table.
CREATE FUNCTION pgsched.forget_gates() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    LOCK TABLE pgsched.queues IN SHARE MODE NOWAIT;
    PERFORM setval('pgsched.gated_queues', (SELECT coalesce(bit_or(pgsched.queue_bit(name)), 0) FROM pgsched.queues));
EXCEPTION WHEN lock_not_available THEN
    NULL;
END $$;

-- Makes the flags anew that are kept outside of transactions (12_worker_tables.sql): each new leader and every
-- `pgsched migrate` does, so that nothing depends on what a restore, a crash or somebody's setval left in them. While
-- somebody changes the queues, their bits are left as they are; the leader tries again with each pruning. Workers raise
-- asleep_until themselves, every few seconds: only a value beyond what any of them asks for is set back, to ten seconds
-- from now, because somebody may be asleep.
CREATE FUNCTION pgsched.rebuild_flags() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms bigint := (date_part('epoch', clock_timestamp()) * 1000)::bigint;
BEGIN
    PERFORM pgsched.forget_gates();
    INSERT INTO pgsched.backward_edges DEFAULT VALUES ON CONFLICT DO NOTHING;  -- a dump of the schema alone lacks the row
    IF pg_sequence_last_value('pgsched.asleep_until') > now_ms + 2 * 86400000 THEN  -- as in pgsched.workers_asleep
        PERFORM setval('pgsched.asleep_until', now_ms + 10000);
    END IF;
END $$;

CREATE FUNCTION pgsched.limits_changed() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('pgsched_leader', 'limits');
    IF TG_OP = 'DELETE' THEN
        DELETE FROM pgsched.pauses WHERE TG_TABLE_NAME = 'queues' AND what = 'limit' AND name = OLD.name;
        RETURN OLD;
    END IF;
    NEW.applied_at := NULL;
    RETURN NEW;
END $$;

-- The end of a pause wakes the workers; an empty name, all of them.
CREATE FUNCTION pgsched.pauses_notify() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('pgsched_runs', CASE WHEN OLD.what IN ('queue', 'limit') THEN OLD.name ELSE '' END);
    PERFORM pg_notify('pgsched_leader', 'limits');
    RETURN NULL;
END $$;

-- The limit that binds a key: its job's own, that of its whole name, or that of what is before its first colon.
CREATE FUNCTION pgsched.limit_of(key text, OUT name text, OUT concurrency integer, OUT rate integer,
    OUT period_s double precision, OUT burst integer, OUT ordered boolean, OUT weight integer)
RETURNS SETOF record LANGUAGE sql STABLE AS $$
    SELECT j.name, j.concurrency_limit, NULL::integer, NULL::double precision, NULL::integer, false, 1
    FROM pgsched.jobs j
    WHERE j.id = CASE WHEN $1 ~ '^job:[0-9]{1,18}(:|$)' THEN split_part($1, ':', 2)::bigint END
    UNION ALL
    (SELECT l.name, l.concurrency, l.rate, extract(epoch FROM l.rate_period)::double precision, l.rate_burst, l.ordered,
         l.weight
     FROM pgsched.limits l WHERE l.name = ANY (ARRAY[$1, split_part($1, ':', 1)]) ORDER BY length(l.name) DESC LIMIT 1)
$$;

-- Does a run pass through admission?
CREATE FUNCTION pgsched.is_limited(queue text, concurrency_key text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT $2 IS NOT NULL OR EXISTS (SELECT FROM pgsched.queues q WHERE q.name = $1 AND q.limited)
$$;

-- Is a queue as full as it may be? No more of it is read than is needed to know.
CREATE FUNCTION pgsched.queue_depth(queue text, most bigint) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_sort = off AS $$
    SELECT count(*) FROM (
        (SELECT FROM pgsched.runs r WHERE r.phase = 2 /* claimable */ AND r.queue = $1 AND r.state = 'queued'
         ORDER BY r.queue, r.priority LIMIT $2)
        UNION ALL
        (SELECT FROM pgsched.runs r WHERE r.phase = 0 /* waiting */ AND r.ready_at IS NOT NULL AND r.queue = $1
         ORDER BY r.queue, coalesce(r.concurrency_key, '') LIMIT $2)) d
$$;

CREATE FUNCTION pgsched.sheds_oldest(queue text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pgsched.queues q WHERE q.name = $1 AND q.on_full = 'shed_oldest')
$$;

-- Makes room for one more run in a queue that has max_depth, or refuses it with an SQLSTATE of its own.
CREATE FUNCTION pgsched.make_room(q pgsched.queues) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_sort = off AS $$
DECLARE
    oldest bigint;
BEGIN
    IF pgsched.queue_depth(q.name, q.max_depth) < q.max_depth THEN
        RETURN;
    ELSIF q.on_full = 'shed_oldest' THEN
        SELECT r.id INTO oldest FROM pgsched.runs r WHERE r.queue = q.name AND r.state IN ('queued', 'waiting') AND (
            r.id IN (SELECT f.id FROM generate_series(0, 9) p CROSS JOIN LATERAL (
                         SELECT a.id FROM pgsched.runs a WHERE a.phase = 2 /* claimable */ AND a.queue = q.name AND a.priority = p
                             AND a.state = 'queued' ORDER BY a.available_at, a.id LIMIT 1) f)
            OR r.id IN (SELECT a.id FROM pgsched.runs a WHERE a.phase = 0 /* waiting */ AND a.ready_at IS NOT NULL
                            AND a.queue = q.name ORDER BY a.ready_at, a.id LIMIT 1))
        ORDER BY r.available_at, r.id LIMIT 1 FOR UPDATE SKIP LOCKED;
        UPDATE pgsched.runs SET state = 'cancelled', finished_at = clock_timestamp(),
            reason = format('shed: queue %s was full (max_depth %s) and newer runs came', q.name, q.max_depth)
        WHERE id = oldest;
        PERFORM pg_notify('pgsched_leader', 'runs');
        RETURN;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'PS429', TABLE = 'runs', SCHEMA = 'pgsched', COLUMN = 'queue', MESSAGE =
        format('queue: %s is full: %s runs wait in it already (max_depth)', q.name, q.max_depth);
END $$;

CREATE FUNCTION pgsched.entry_state(queue text, concurrency_key text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    q pgsched.queues;
BEGIN
    SELECT * INTO q FROM pgsched.queues s WHERE s.name = entry_state.queue;
    IF q.max_depth IS NOT NULL THEN
        PERFORM pgsched.make_room(q);
    END IF;
    -- a snapshot of the whole transaction may be older than the queue's limit: let the leader judge
    RETURN CASE WHEN entry_state.concurrency_key IS NOT NULL OR q.limited
                    OR current_setting('transaction_isolation') <> 'read committed' THEN 'waiting' ELSE 'queued' END;
END $$;

-- A run that becomes claimable again goes through admission again. No search_path: it is to be inlined.
CREATE FUNCTION pgsched.back_in_line(state text, queue text, concurrency_key text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN $1 = 'queued' AND pgsched.is_limited($2, $3) THEN 'waiting' ELSE $1 END
$$;

-- The key of a job's run: its template with {name} replaced by that argument (none: nothing). A job with a limit of its
-- own has keys of its own; all its runs share one where there is no template.
CREATE FUNCTION pgsched.run_key(job_id bigint, template text, concurrency_limit integer, args jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text;
    made text := template;
BEGIN
    IF template IS NULL AND concurrency_limit IS NULL THEN
        RETURN NULL;
    END IF;
    FOR name IN SELECT DISTINCT m[1] FROM regexp_matches(template, '\{([^{}]+)\}', 'g') m LOOP
        made := replace(made, '{' || name || '}', coalesce(CASE
            WHEN jsonb_typeof(args) = 'object' THEN args ->> name
            WHEN name ~ '^\d{1,4}$' THEN args ->> name::integer END, ''));
    END LOOP;
    made := CASE WHEN template IS NOT NULL THEN coalesce(nullif(btrim(made), ''), '-') END;
    IF concurrency_limit IS NOT NULL THEN
        made := 'job:' || job_id || coalesce(':' || made, '');
    END IF;
    RETURN CASE WHEN length(made) <= 200 THEN made ELSE left(made, 160) || md5(made) END;
END $$;

-- A limit that a job gets, changes or loses holds for its unfinished runs as well: those that are queued go through
-- admission again. Those that are just being made hold the job's key: they have to be seen first.
CREATE FUNCTION pgsched.jobs_rekey() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
    IF (NEW.concurrency_key, NEW.concurrency_limit) IS NOT DISTINCT FROM (OLD.concurrency_key, OLD.concurrency_limit) THEN
        RETURN NULL;
    END IF;
    PERFORM FROM pgsched.jobs j WHERE j.id = NEW.id FOR UPDATE;
    UPDATE pgsched.runs r SET concurrency_key = pgsched.run_key(NEW.id, NEW.concurrency_key, NEW.concurrency_limit, r.args),
        ready_at = CASE WHEN r.state = 'queued' THEN coalesce(r.ready_at, clock_timestamp()) ELSE r.ready_at END,
        state = CASE WHEN r.state = 'queued' THEN 'waiting' ELSE r.state END
    WHERE r.job_id = NEW.id AND r.phase < 3 /* open */;
    PERFORM pg_notify('pgsched_leader', 'limits');
    RETURN NULL;
END $$;
