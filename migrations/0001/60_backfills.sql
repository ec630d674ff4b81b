-- Runs that a person asks for in the past. The leader works on every open backfill (leader/backfill.py), so that it
-- outlives the client that asked. The schedule is that of the moment of asking; the slots are those in [from_at, to_at).

CREATE TABLE pgsched.backfills (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id       bigint NOT NULL,
    job          text NOT NULL,
    schedule     text NOT NULL,
    timezone     text NOT NULL,
    anchor_at    timestamptz NOT NULL,
    from_at      timestamptz NOT NULL,
    to_at        timestamptz NOT NULL,
    mode         text NOT NULL DEFAULT 'missing',
    max_active   integer NOT NULL DEFAULT 1,
    reverse      boolean NOT NULL DEFAULT false,
    priority     smallint NOT NULL DEFAULT 9,
    slots        bigint NOT NULL,
    -- how far it is: the newest slot that was considered, how many were, and how many of them became runs
    cursor_at    timestamptz,
    considered   bigint NOT NULL DEFAULT 0,
    started      bigint NOT NULL DEFAULT 0,
    requested_by text NOT NULL DEFAULT session_user,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    cancelled_at timestamptz,
    cancelled_by text,
    finished_at  timestamptz,
    error        text,
    CONSTRAINT backfills_mode CHECK (mode IN ('missing', 'failed', 'all')),
    CONSTRAINT backfills_max_active CHECK (max_active BETWEEN 1 AND 1000),
    CONSTRAINT backfills_priority CHECK (priority BETWEEN 0 AND 9),
    CONSTRAINT backfills_slots CHECK (slots BETWEEN 1 AND 100000),
    CONSTRAINT backfills_order CHECK (from_at < to_at)
) WITH (fillfactor = 50);
CREATE INDEX backfills_open ON pgsched.backfills (id) WHERE finished_at IS NULL;

-- Ends a backfill as one thing: nothing more is started, its unstarted runs are cancelled and its running ones asked to
-- stop. Returns cancelled; finished where it had ended already; NULL when there is no such backfill.
CREATE FUNCTION pgsched.cancel_backfill(backfill_id bigint, why text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    b pgsched.backfills;
    author text := format('%s%s', session_user, coalesce(': ' || cancel_backfill.why, ''));
BEGIN
    -- the leader holds this row while it starts runs: none can be born after the loop below has looked
    SELECT * INTO b FROM pgsched.backfills WHERE id = cancel_backfill.backfill_id FOR UPDATE;
    IF b.id IS NULL THEN
        RETURN NULL;
    ELSIF b.finished_at IS NOT NULL THEN
        RETURN CASE WHEN b.cancelled_at IS NULL THEN 'finished' ELSE 'cancelled' END;
    END IF;
    UPDATE pgsched.backfills SET cancelled_at = clock_timestamp(), finished_at = clock_timestamp(),
        cancelled_by = author WHERE id = b.id;
    PERFORM pgsched.cancel(r.id, format('backfill %s was cancelled%s', b.id, coalesce(': ' || cancel_backfill.why, '')))
    FROM (SELECT id FROM pgsched.runs WHERE backfill_id = b.id AND phase < 3 ORDER BY id) r;
    RETURN 'cancelled';
END $$;
