-- Locks are leases: rows that hang on a session, which its process renews. A session that is not renewed in time ends, and
-- all that it holds with it. Neither a connection nor a transaction stays open for a lock.

-- The number of each grant, the same sequence for all locks: of two grants of a lock the later one has the higher number,
-- also if the lock's row was deleted between them. It is never reset; pgsched.restored() sets it ahead after a restore.
CREATE SEQUENCE pgsched.fences;

-- lease_until has no index, so that a renewal writes no index entry.
CREATE TABLE pgsched.sessions (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token       uuid NOT NULL UNIQUE,
    name        text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    owner       name NOT NULL,
    ttl         interval NOT NULL CHECK (ttl BETWEEN '1 s' AND '1 day'),
    opened_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamptz NOT NULL,
    ended_at    timestamptz
) WITH (fillfactor = 50);
CREATE INDEX sessions_of_owner ON pgsched.sessions (owner);

-- A lock is a name; its row exists since somebody used it. last_place and used_at change with each grant and release: so
-- of two transactions that would give the same lock, one waits or fails, whatever its isolation level.
CREATE TABLE pgsched.locks (
    name       text COLLATE "C" PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 200),
    owner      name NOT NULL,
    kind       text NOT NULL DEFAULT 'lock' CHECK (kind IN ('lock', 'election')),
    capacity   integer CHECK (capacity BETWEEN 1 AND 10000),
    last_place bigint NOT NULL DEFAULT 0,
    used_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    number     bigint GENERATED ALWAYS AS IDENTITY
) WITH (fillfactor = 50);
CREATE INDEX locks_of_owner ON pgsched.locks (owner);

-- The line of each lock: holders (fence is not null) and, behind them, those who wait.
CREATE TABLE pgsched.lock_places (
    lock       text COLLATE "C" NOT NULL REFERENCES pgsched.locks ON DELETE CASCADE,
    place      bigint NOT NULL,
    session    bigint NOT NULL REFERENCES pgsched.sessions ON DELETE CASCADE,
    token      uuid NOT NULL UNIQUE,
    mode       text NOT NULL CHECK (mode IN ('exclusive', 'shared', 'counted')),
    fence      bigint,
    note       text CHECK (octet_length(note) <= 65536),
    since      timestamptz NOT NULL DEFAULT clock_timestamp(),
    give_up_at timestamptz,
    granted_at timestamptz,
    left_at    timestamptz,
    number     bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (lock, place),
    CHECK ((fence IS NULL) = (granted_at IS NULL))
) WITH (fillfactor = 70);
CREATE INDEX lock_places_of_session ON pgsched.lock_places (session);
CREATE UNIQUE INDEX lock_places_held ON pgsched.lock_places (lock, fence) WHERE fence IS NOT NULL;
-- nobody has to believe the functions: two holders of one lock cannot be stored
CREATE UNIQUE INDEX lock_places_one_holder ON pgsched.lock_places (lock) WHERE fence IS NOT NULL AND mode = 'exclusive';

-- Grants that somebody took from a session (lock_break). They are rows of their own, because a renewal must not wait for the
-- transaction of whoever takes something from the session.
CREATE TABLE pgsched.lock_losses (
    session bigint NOT NULL REFERENCES pgsched.sessions ON DELETE CASCADE,
    fence   bigint NOT NULL,
    PRIMARY KEY (session, fence)
);

-- Names that begin with a prefix are for these roles only, whoever uses them first.
CREATE TABLE pgsched.name_grants (
    prefix text NOT NULL CHECK (length(prefix) BETWEEN 1 AND 200),
    role   name NOT NULL,
    PRIMARY KEY (prefix, role)
);

-- So that a limit is not counted for each row: see 59_room.sql.
CREATE TABLE pgsched.role_room (
    what       text COLLATE "C" NOT NULL,
    owner      name NOT NULL,
    counted_at bigint NOT NULL,
    room_until bigint NOT NULL,
    PRIMARY KEY (what, owner, counted_at)
);

COMMENT ON SEQUENCE pgsched.fences IS 'The number of each grant of a lock. Never reset.';
COMMENT ON SEQUENCE pgsched.locks_number_seq IS 'Of the column number in pgsched.locks.';
COMMENT ON SEQUENCE pgsched.lock_places_number_seq IS 'Of the column number in pgsched.lock_places.';
COMMENT ON TABLE pgsched.sessions IS 'Processes that hold locks and other leases; a process renews its session.';
COMMENT ON COLUMN pgsched.sessions.token IS 'Chosen by the process: who knows it, and may act for its owner, uses the session.';
COMMENT ON COLUMN pgsched.sessions.lease_until IS 'When it ends unless it is renewed before.';
COMMENT ON COLUMN pgsched.sessions.ended_at IS 'It was ended, or found not renewed. It never lives again.';
COMMENT ON TABLE pgsched.locks IS 'Names that were used as a lock, an election or a semaphore.';
COMMENT ON COLUMN pgsched.locks.owner IS 'The role that used the name first.';
COMMENT ON COLUMN pgsched.locks.kind IS 'What those who use it call it. An election is a lock whose holder is called the leader.';
COMMENT ON COLUMN pgsched.locks.capacity IS 'How many may hold a semaphore at the same time. NULL: it is a lock.';
COMMENT ON COLUMN pgsched.locks.last_place IS 'The last place given in its line.';
COMMENT ON COLUMN pgsched.locks.used_at IS 'When it was last asked for, given or given back. A name unused for 30 days is deleted.';
COMMENT ON COLUMN pgsched.locks.number IS 'It rises with each name that anybody adds: see pgsched.role_room.';
COMMENT ON TABLE pgsched.lock_places IS 'Who holds a lock, and who waits for it, in their order.';
COMMENT ON COLUMN pgsched.lock_places.token IS 'Chosen by the process: to ask again with it gives the same answer.';
COMMENT ON COLUMN pgsched.lock_places.fence IS 'The number of this grant, for assert_lock. NULL: it waits.';
COMMENT ON COLUMN pgsched.lock_places.note IS 'What the process says of itself to whoever reads the line.';
COMMENT ON COLUMN pgsched.lock_places.give_up_at IS 'When it leaves the line if it still waits. NULL: when its session ends.';
COMMENT ON COLUMN pgsched.lock_places.left_at IS 'It is held no more. It stays until the transaction ends that asserts it.';
COMMENT ON COLUMN pgsched.lock_places.number IS 'It rises with each place in any line: see pgsched.role_room.';
COMMENT ON TABLE pgsched.lock_losses IS 'Grants that somebody took from a session: then it reads which it still has.';
COMMENT ON TABLE pgsched.name_grants IS 'Who may use names with this prefix. Other names belong to the role that used them first.';
COMMENT ON TABLE pgsched.role_room IS 'Until when a role may add rows of a table before they are counted again, for its limit.';
COMMENT ON COLUMN pgsched.role_room.what IS 'The table.';
COMMENT ON COLUMN pgsched.role_room.counted_at IS 'The number of the row for which they were counted.';
COMMENT ON COLUMN pgsched.role_room.room_until IS 'No row up to this number is one too many for the role.';
