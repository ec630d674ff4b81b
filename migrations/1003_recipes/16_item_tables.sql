-- Item queues: values that producers put and consumers get. An item is held by the session of its consumer until it is
-- consumed, which deletes it. It has a table of its own: as rows of pgsched.runs, items would be read by every claim, and by
-- the leader's search for expired leases.

-- A queue is a name; its row exists since somebody used it.
CREATE TABLE pgsched.item_queues (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name      text NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 200),
    owner     name NOT NULL,
    looked_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
CREATE INDEX item_queues_of_owner ON pgsched.item_queues (owner);

-- queue and session are no foreign keys, because each put and each get would pay for one. Queues are never deleted. A
-- session that is not there has ended, and holds nothing.
CREATE TABLE pgsched.items (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue        bigint NOT NULL,
    session      bigint,
    available_at timestamptz NOT NULL,
    put_at       timestamptz NOT NULL,
    held_at      timestamptz,
    token        uuid,
    attempt      integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 0,
    priority     smallint NOT NULL DEFAULT 100 CHECK (priority BETWEEN 0 AND 999),
    value        jsonb NOT NULL,
    error        text CHECK (octet_length(error) <= 65536),
    CHECK ((session IS NULL) = (token IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.05);
-- what waits, in the order in which it is handed out; and what is held
CREATE INDEX items_line ON pgsched.items (queue, priority, available_at, id) WHERE session IS NULL;
CREATE INDEX items_held ON pgsched.items (queue, session, token) WHERE session IS NOT NULL;

-- The sessions that get items of a queue. A session that holds an item has a row here: by it the item is found again when
-- the session has ended. Whoever hands out an item keeps the row from being deleted.
CREATE TABLE pgsched.item_consumers (
    queue         bigint NOT NULL,
    session       bigint NOT NULL,
    waiting_since timestamptz,
    PRIMARY KEY (queue, session)
) WITH (fillfactor = 50);
CREATE INDEX item_consumers_of_session ON pgsched.item_consumers (session);
CREATE INDEX item_consumers_waiting ON pgsched.item_consumers (queue, waiting_since) WHERE waiting_since IS NOT NULL;

COMMENT ON TABLE pgsched.item_queues IS 'Names that were used as an item queue.';
COMMENT ON COLUMN pgsched.item_queues.owner IS 'The role that used the name first.';
COMMENT ON COLUMN pgsched.item_queues.looked_at IS 'When somebody last looked for items whose holder has gone.';
COMMENT ON TABLE pgsched.items IS 'Items that were put into item queues and are not consumed yet.';
COMMENT ON COLUMN pgsched.items.session IS 'The session that holds it. NULL: it waits.';
COMMENT ON COLUMN pgsched.items.available_at IS 'From when it is handed out; its place in the line of its priority.';
COMMENT ON COLUMN pgsched.items.token IS 'Chosen by the process that got it: only who knows it consumes the item.';
COMMENT ON COLUMN pgsched.items.attempt IS 'How often it was handed out.';
COMMENT ON COLUMN pgsched.items.max_attempts IS 'As its holder says: handed out so often, it becomes a dead run. 0: never.';
COMMENT ON COLUMN pgsched.items.error IS 'Why it came back the last time.';
COMMENT ON TABLE pgsched.item_consumers IS 'Sessions that get items of a queue.';
COMMENT ON COLUMN pgsched.item_consumers.waiting_since IS 'Since when it waits for an item. NULL: it does not.';
