-- Notifications are hints: whoever may connect may send and read them, a full queue of them refuses commits, and a commit
-- that notifies waits for every other one that does. So nothing depends on one, none names a job or a queue, and as few as
-- can be are sent. Locks that anybody may take stop nobody: what must be one at a time is decided by a row that
-- only our roles may lock.

-- A leader's term is its row, which it locks in each of its transactions (leader_fence in sql/leadership.sql).
ALTER TABLE pgsched.leader
    ADD COLUMN by_lock boolean NOT NULL DEFAULT false,  -- its session also held the advisory lock by which others wait
    ADD COLUMN backend integer;                         -- that session (pg_backend_pid())

-- What is to be done by one at a time: who does it locks the row.
CREATE TABLE pgsched.turns (
    name text PRIMARY KEY
);
INSERT INTO pgsched.turns VALUES ('declare'), ('gated_queues');

CREATE FUNCTION pgsched.take_turn(name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM pgsched.turns t WHERE t.name = take_turn.name FOR NO KEY UPDATE;
    IF NOT FOUND THEN  -- a dump of the schema alone lacks the rows
        INSERT INTO pgsched.turns VALUES (take_turn.name) ON CONFLICT DO NOTHING;
        PERFORM FROM pgsched.turns t WHERE t.name = take_turn.name FOR NO KEY UPDATE;
    END IF;
END $$;

-- Declaring jobs: false where somebody else has been at it for 5 s, who must not keep a worker from its start. With its
-- owner's rights: nobody else needs any on the table.
CREATE FUNCTION pgsched.take_declare_turn() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    PERFORM pgsched.take_turn('declare');
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;

-- The same beside each other, for processes that only see to it that their jobs are as their code declares them: false where
-- somebody declares and has been at it for a second.
CREATE FUNCTION pgsched.share_declare_turn() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
BEGIN
    PERFORM FROM pgsched.turns t WHERE t.name = 'declare' FOR SHARE;
    RETURN FOUND;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;

-- The same for the leader, who does not wait.
CREATE FUNCTION pgsched.try_declare_turn() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM pgsched.turns t WHERE t.name = 'declare' FOR NO KEY UPDATE SKIP LOCKED;
    RETURN FOUND;
END $$;

-- A flag as those of 12_worker_tables.sql: milliseconds since 1970 until which the leader looks at nothing by itself that
-- becomes due before. Past: it is at work, or nobody leads. pgsched.rebuild_flags makes it anew; one that is far ahead
-- costs notifications and no more.
CREATE SEQUENCE pgsched.leader_looks_at MINVALUE 0 MAXVALUE 9000000000000 START 0;
GRANT SELECT ON SEQUENCE pgsched.leader_looks_at TO PUBLIC;

-- It says of what as well: pgsched.tell_once.
ALTER SEQUENCE pgsched.told_at MAXVALUE 9223372036854775807;

-- What a notification says of a queue. Whoever may connect may listen, and learns no name. Inlined, as is_plain: it is no
-- more immutable than convert_to is.
CREATE FUNCTION pgsched.queue_mark(queue text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(queue, 'UTF8')), 'hex'), 16)
$$;

-- Notifies, unless the server's queue of notifications fills up: then each commit that notifies may be refused, and who
-- waits looks by himself in time. To ask how full it is takes out what everybody has read. Null, always. Inlined, as is_plain.
CREATE FUNCTION pgsched.notify(channel text, payload text) RETURNS text
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN pg_catalog.pg_notification_queue_usage() < 0.5::float8
        THEN nullif(pg_catalog.pg_notify(channel, payload)::text, ''::text) END
$$;

-- Notifies once for all transactions that overlap: one does, and whoever is woken looks again 3 and 15 ms later
-- (pgsched/worker/claiming/polling.py), the leader 20 ms later (pgsched/leader/periodic.py). A transaction that goes on for
-- long, or somebody who just holds the lock, must not silence the others: every 20 ms one of them notifies all the same.
-- told_at holds that instant, and in its last 20 bits what was told of. With its owner's rights: nobody else needs any on
-- the sequence.
CREATE FUNCTION pgsched.tell_once(channel text, payload text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    what bigint := hashtextextended(channel || ' ' || payload, 7236838);
    now_ms bigint;
    told bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(what) THEN
        now_ms := (date_part('epoch', clock_timestamp()) * 1000)::bigint;
        told := coalesce(pg_sequence_last_value('pgsched.told_at'), 0);
        -- a value of a clock that ran ahead is not believed
        IF (told & 1048575) = (what & 1048575) AND (told >> 20) BETWEEN now_ms - 20 AND now_ms THEN
            RETURN NULL;
        END IF;
        PERFORM setval('pgsched.told_at', (now_ms << 20) | (what & 1048575));
    END IF;
    RETURN pgsched.notify(channel, payload);
END $$;

-- There is something for the leader, due at this instant (null: now). It is told only if it would not look before.
CREATE FUNCTION pgsched.tell_leader(due timestamptz DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_sequence_last_value('pgsched.leader_looks_at')
        > date_part('epoch', greatest(due, clock_timestamp())) * 1000 THEN
        RETURN pgsched.tell_once('pgsched_leader', 'runs');
    END IF;
    RETURN NULL;
END $$;

-- The leader looks again in so many seconds; for the leader. With its owner's rights, as above.
CREATE FUNCTION pgsched.leader_sleeps(seconds double precision) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM setval('pgsched.leader_looks_at', (date_part('epoch', clock_timestamp()) * 1000)::bigint
        + (least(greatest(seconds, 0), 60) * 1000)::bigint);
END $$;

COMMENT ON SEQUENCE pgsched.leader_looks_at IS
    'Until when the leader looks at nothing by itself that becomes due before, in milliseconds since 1970.';
COMMENT ON TABLE pgsched.turns IS 'Rows to lock: what is to be done by one at a time.';
COMMENT ON COLUMN pgsched.leader.by_lock IS 'Did the session also hold the advisory lock by which candidates wait?';
COMMENT ON COLUMN pgsched.leader.backend IS 'The session of the server that leads; null: a pooler lends it others.';

-- ---- what producers do by a function, because a grant would let them lock

-- Who may DELETE from a table may lock it, and who may UPDATE a column may lock rows: of what others need producers get
-- neither (sql/roles.sql).

-- Deletes a job. Its unstarted runs are cancelled by a trigger; running ones go on, history stays. Returns the job's id, and
-- how many of its runs are running; NULL when the caller has no such job.
CREATE FUNCTION pgsched.delete_job(job text, OUT id bigint, OUT running bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM pgsched.jobs j WHERE j.name = delete_job.job AND pgsched.may_change(j.owner) RETURNING j.id INTO delete_job.id;
    running := CASE WHEN delete_job.id IS NOT NULL THEN (SELECT count(*) FROM pgsched.runs r
        WHERE r.job_id = delete_job.id AND r.phase < 3 /* open */ AND r.state = 'running') END;
END $$;

-- Allows dates of a job again; of a stretch that reaches beyond them, the rest stays excluded. Returns the stretches that
-- were cut or removed, as they were.
CREATE FUNCTION pgsched.include_dates(job text, first_date date, last_date date)
RETURNS TABLE (from_date date, until_date date, reason text)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH gone AS (
        DELETE FROM pgsched.job_calendars c USING pgsched.jobs j
        WHERE j.name = $1 AND c.job_id = j.id AND c.from_date <= $3 AND c.until_date >= $2 AND pgsched.may_change(j.owner)
        RETURNING c.job_id, c.from_date, c.until_date, c.reason
    ), rest AS (
        INSERT INTO pgsched.job_calendars AS c (job_id, from_date, until_date, reason)
        SELECT job_id, from_date, $2 - 1, reason FROM gone WHERE from_date < $2
        UNION ALL
        SELECT job_id, $3 + 1, until_date, reason FROM gone WHERE until_date > $3
        ON CONFLICT (job_id, from_date) DO UPDATE SET until_date = greatest(c.until_date, excluded.until_date)
    )
    SELECT from_date, until_date, reason FROM gone ORDER BY from_date
$$;

-- Gives a run these tags in place of those that it has. Returns them; NULL when there is no such run.
CREATE FUNCTION pgsched.set_tags(run_id bigint, tags text[]) RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := CASE WHEN tags IS NOT NULL THEN pgsched.bad_tags(tags) END;
    r record;
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    SELECT o.id, o.owner INTO r FROM pgsched.runs o WHERE o.id = set_tags.run_id;
    PERFORM pgsched.refuse_others(format('run %s', r.id), r.owner) WHERE r.id IS NOT NULL;
    UPDATE pgsched.runs o SET tags = set_tags.tags WHERE o.id = r.id;
    RETURN CASE WHEN FOUND THEN coalesce(set_tags.tags, '{}') END;
END $$;

-- Locks a run that the caller may change, until his transaction ends; no row for one that somebody else has locked, or
-- that is not there.
CREATE FUNCTION pgsched.hold_run(run_id bigint) RETURNS TABLE (id bigint, state text, unique_key text)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.id, r.state, r.unique_key FROM pgsched.runs r
    WHERE r.id = $1 AND pgsched.may_change(r.owner) FOR NO KEY UPDATE SKIP LOCKED
$$;

COMMENT ON FUNCTION pgsched.delete_job(text) IS
    'Deletes a job: its unstarted runs are cancelled, running ones go on. Returns its id and how many run; NULL if there is none.';
COMMENT ON FUNCTION pgsched.include_dates(text, date, date) IS
    'Allows dates of a job again that were excluded; returns the stretches that were cut or removed, as they were.';
COMMENT ON FUNCTION pgsched.set_tags(bigint, text[]) IS
    'Gives a run these tags in place of those that it has; returns them. NULL when there is no such run.';
