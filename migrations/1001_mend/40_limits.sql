-- Whoever sets something for a queue sets its bit first; two at once would lose one without the lock. What is queued when
-- it gets its first limit may be more than that allows: it is not claimed until the leader has looked.
CREATE OR REPLACE FUNCTION pgsched.queues_gate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.take_turn('gated_queues');
    PERFORM setval('pgsched.gated_queues',
                   coalesce(pg_sequence_last_value('pgsched.gated_queues'), 0) | pgsched.queue_bit(NEW.name));
    NEW.applied_at := NULL;
    INSERT INTO pgsched.pauses (what, name, reason)
    SELECT 'limit', NEW.name, 'its first limit is being applied'
    WHERE (NEW.concurrency_limit IS NOT NULL OR NEW.rate IS NOT NULL OR NEW.fair OR NEW.ageing IS NOT NULL)
      AND NOT EXISTS (SELECT FROM pgsched.queues q WHERE q.name = NEW.name AND q.limited)
    ON CONFLICT (what, name) DO NOTHING;
    PERFORM pgsched.notify('pgsched_leader', 'limits');
    RETURN NEW;
END $$;

-- Makes the flags anew that are kept outside of transactions (12_worker_tables.sql): each new leader and every
-- `pgsched migrate` does, so that nothing depends on what a restore, a crash or somebody's setval left in them. While
-- somebody changes the queues, their bits are left as they are; the leader tries again with each pruning. Workers raise
-- asleep_until themselves, every few seconds: only a value beyond what any of them asks for is set back, to ten seconds
-- from now, because somebody may be asleep.
CREATE OR REPLACE FUNCTION pgsched.rebuild_flags() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms bigint := (date_part('epoch', clock_timestamp()) * 1000)::bigint;
BEGIN
    PERFORM pgsched.forget_gates();
    PERFORM pgsched.mark_tasks();
    -- a dump of the schema alone lacks these rows
    INSERT INTO pgsched.turns VALUES ('declare'), ('gated_queues') ON CONFLICT DO NOTHING;
    IF pg_sequence_last_value('pgsched.asleep_until') > now_ms + 2 * 86400000 THEN  -- as in pgsched.workers_asleep
        PERFORM setval('pgsched.asleep_until', now_ms + 10000);
    END IF;
    IF pg_sequence_last_value('pgsched.leader_looks_at') > now_ms + 60000 THEN  -- as in pgsched.leader_sleeps
        PERFORM setval('pgsched.leader_looks_at', now_ms + 10000);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION pgsched.limits_changed() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.notify('pgsched_leader', 'limits');
    IF TG_OP = 'DELETE' THEN
        DELETE FROM pgsched.pauses WHERE TG_TABLE_NAME = 'queues' AND what = 'limit' AND name = OLD.name;
        RETURN OLD;
    END IF;
    NEW.applied_at := NULL;
    RETURN NEW;
END $$;

-- The end of a pause wakes the workers; an empty name, all of them.
CREATE OR REPLACE FUNCTION pgsched.pauses_notify() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.notify('pgsched_runs',
        CASE WHEN OLD.what IN ('queue', 'limit') THEN pgsched.queue_mark(OLD.name) ELSE '' END);
    PERFORM pgsched.notify('pgsched_leader', 'limits');
    RETURN NULL;
END $$;

-- Makes room for one more run in a queue that has max_depth, or refuses it with an SQLSTATE of its own.
CREATE OR REPLACE FUNCTION pgsched.make_room(q pgsched.queues) RETURNS void
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
        PERFORM pgsched.tell_leader();
        RETURN;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'PS429', TABLE = 'runs', SCHEMA = 'pgsched', COLUMN = 'queue', MESSAGE =
        format('queue: %s is full: %s runs wait in it already (max_depth)', q.name, q.max_depth);
END $$;

-- A limit that a job gets, changes or loses holds for its unfinished runs as well: those that are queued go through
-- admission again. Those that are just being made hold the job's key: they have to be seen first.
CREATE OR REPLACE FUNCTION pgsched.jobs_rekey() RETURNS trigger
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
    PERFORM pgsched.notify('pgsched_leader', 'limits');
    RETURN NULL;
END $$;

-- The key of a job's run: its template with {name} replaced by that argument (none: nothing). A job with a limit of its
-- own has keys of its own; all its runs share one where there is no template. One pass over the template: braces in a value
-- are text. A long value is cut, with a hash of the whole behind it, so that two of them stay apart. The keys job:... belong
-- to the limits of jobs: what a template makes of its arguments gets a dash before it.
CREATE OR REPLACE FUNCTION pgsched.run_key(job_id bigint, template text, concurrency_limit integer, args jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made text := template;
BEGIN
    IF template IS NULL AND concurrency_limit IS NULL THEN
        RETURN NULL;
    END IF;
    IF strpos(template, '{') > 0 THEN
        -- of two that match at one place the longer one is taken: a name in braces before the brace alone
        SELECT string_agg(CASE
                WHEN p.name IS NULL THEN p.part
                WHEN length(v.value) > 200 THEN left(v.value, 160) || md5(v.value)
                ELSE coalesce(v.value, '') END, '' ORDER BY p.n) INTO made
        FROM (SELECT m[1] AS part, substring(m[1] FROM '^\{([^{}]+)\}$') AS name, n
              FROM regexp_matches(template, '(\{[^{}]+\}|\{|[^{]+)', 'g') WITH ORDINALITY AS r(m, n)) p
        CROSS JOIN LATERAL (SELECT CASE
            WHEN jsonb_typeof(args) = 'object' THEN args ->> p.name
            WHEN p.name ~ '^\d{1,4}$' THEN args ->> p.name::integer END AS value) v;
    END IF;
    made := CASE WHEN template IS NOT NULL THEN coalesce(nullif(btrim(made), ''), '-') END;
    IF concurrency_limit IS NOT NULL THEN
        made := 'job:' || job_id || coalesce(':' || made, '');
    ELSIF made ~ '^job(:|$)' THEN
        made := '-' || made;
    END IF;
    RETURN CASE WHEN length(made) <= 200 THEN made ELSE left(made, 160) || md5(made) END;
END $$;
