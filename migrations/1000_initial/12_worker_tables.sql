-- Who works, who leads, and what holds runs back.

CREATE TABLE pgsched.workers (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name           text NOT NULL,
    hostname       text NOT NULL,
    pid            integer NOT NULL,
    version        text NOT NULL,
    app            text,
    concurrency    integer NOT NULL,
    queues         text[],
    kinds          text[] NOT NULL,
    tasks          text[] NOT NULL,
    lease          interval NOT NULL,
    started_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    stopping_at    timestamptz,
    stopped_at     timestamptz,
    running        integer NOT NULL DEFAULT 0,
    abandoned      integer NOT NULL DEFAULT 0,
    -- Since when its event loop has not turned, and which handlers are at it; null: it turns. Such a worker keeps its
    -- leases, and so must be seen to be stuck.
    blocked_at     timestamptz,
    blocked_by     text,
    -- somebody asks it to take no more runs and to end when those that it has are done; its heartbeat hears of it
    drain_asked_at timestamptz,
    drain_asked_by text,
    -- What `pgsched doctor` compares between hosts: how far the worker's clock was ahead of the database's when it started
    -- (a round trip makes it at most that much less), and which tz database it computes schedules with.
    clock_ahead_s  double precision,
    tz_version     text,
    pooler         text,    -- how it reaches the server: session or transaction, the pooler's mode; null: there is none
    declares       text[],  -- the jobs that its code declares; null: it does not say, and may declare any job of its app
    CONSTRAINT workers_declares_size CHECK (coalesce(pg_column_size(declares), 0) <= 16777216),
    CONSTRAINT workers_texts_size CHECK (
        octet_length(name) <= 1024 AND octet_length(hostname) <= 1024 AND octet_length(version) <= 1024
        AND coalesce(octet_length(app), 0) <= 1024 AND coalesce(octet_length(blocked_by), 0) <= 65536
        AND coalesce(octet_length(drain_asked_by), 0) <= 1024
        AND pg_column_size(tasks) <= 16777216 AND coalesce(pg_column_size(queues), 0) <= 1048576)
) WITH (fillfactor = 50);

-- One row per term; the newest is the leader. Older rows answer "who led then, and was anyone leading?".
CREATE TABLE pgsched.leader (
    term        bigint PRIMARY KEY,
    holder      text NOT NULL,
    hostname    text NOT NULL,
    pid         integer NOT NULL,
    elected_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    resigned_at timestamptz,
    CONSTRAINT leader_texts_size CHECK (octet_length(holder) <= 1024 AND octet_length(hostname) <= 1024)
) WITH (fillfactor = 50);

-- Settings of queues.
CREATE TABLE pgsched.queues (
    name              text PRIMARY KEY,
    concurrency_limit integer CHECK (concurrency_limit >= 0),
    rate              integer CHECK (rate > 0),
    rate_period       interval,
    rate_burst        integer CHECK (rate_burst > 0),
    max_depth         bigint CHECK (max_depth > 0),
    on_full           text NOT NULL DEFAULT 'reject' CHECK (on_full IN ('reject', 'shed_oldest')),
    fair              boolean NOT NULL DEFAULT false,
    ageing            interval CHECK (ageing BETWEEN '1 second' AND '10 years'),
    applied_at        timestamptz,  -- null: the leader has yet to take back what is admitted beyond a new limit
    limited           boolean NOT NULL GENERATED ALWAYS AS
        (concurrency_limit IS NOT NULL OR rate IS NOT NULL OR fair OR ageing IS NOT NULL) STORED,
    keep              jsonb,
    CONSTRAINT queues_name CHECK (length(name) BETWEEN 1 AND 100),
    CONSTRAINT queues_rate CHECK ((rate IS NULL) = (rate_period IS NULL) AND (rate IS NOT NULL OR rate_burst IS NULL)),
    CONSTRAINT queues_rate_period CHECK (rate_period BETWEEN '1 millisecond' AND '31 days')
);

-- Limits of keys. Every run whose concurrency_key is the name of a limit, or begins with it and a colon, is bound by it,
-- each key for itself; where both `customer` and `customer:42` are limits, the longer one alone binds customer:42.
CREATE TABLE pgsched.limits (
    name        text PRIMARY KEY,
    concurrency integer CHECK (concurrency >= 0),
    rate        integer CHECK (rate > 0),
    rate_period interval,
    rate_burst  integer CHECK (rate_burst > 0),
    ordered     boolean NOT NULL DEFAULT false,
    weight      integer NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 1000),  -- a key's share of a fair queue
    applied_at  timestamptz,  -- as in pgsched.queues
    CONSTRAINT limits_name CHECK (length(name) BETWEEN 1 AND 500 AND name !~ '^job(:|$)'),
    CONSTRAINT limits_rate CHECK ((rate IS NULL) = (rate_period IS NULL) AND (rate IS NOT NULL OR rate_burst IS NULL)),
    CONSTRAINT limits_rate_period CHECK (rate_period BETWEEN '1 millisecond' AND '31 days')
);

-- What must not start. Claims look here (claim in sql/claims.sql), so that a pause holds from its commit on, costs one
-- look at a table that is nearly always empty, and moves no run. A row whose resume_at has passed pauses nothing. `limit`
-- is a queue that has got its first limit: nothing of it is claimed until the leader has taken back what is queued beyond
-- that.
CREATE TABLE pgsched.pauses (
    what      text NOT NULL CHECK (what IN ('all', 'queue', 'task', 'limit')),
    name      text NOT NULL DEFAULT '' CHECK (length(name) <= 200),
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    paused_by text NOT NULL DEFAULT session_user,
    reason    text CHECK (length(reason) <= 10000),
    resume_at timestamptz CHECK (resume_at BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'),
    PRIMARY KEY (what, name),
    CONSTRAINT pauses_all_has_no_name CHECK ((what = 'all') = (name = ''))
);

-- The tokens that a rate limit has left for more admissions, as of an instant. Written by the leader alone, in the
-- transaction that admits. No row: the bucket is full. unstarted: admitted runs that had not started then.
CREATE TABLE pgsched.buckets (
    name      text PRIMARY KEY,  -- 'queue ' and a queue, or 'key ' and a key
    tokens    double precision NOT NULL,
    at        timestamptz NOT NULL,
    unstarted integer NOT NULL
) WITH (fillfactor = 50);

-- Claims that a rate has charged and that were given back unstarted, until the leader has given their tokens back.
CREATE TABLE pgsched.refunds (
    run_id          bigint,
    claimed_at      timestamptz,
    queue           text NOT NULL,
    concurrency_key text,
    PRIMARY KEY (run_id, claimed_at)
);

-- Three flags that a transaction of any isolation level must see at once, which no row can give: under REPEATABLE READ an
-- enqueue would read an old row, and whoever changes a row makes the others wait. They are sequences, read without a
-- query. Each follows from rows or from the clock: pgsched.rebuild_flags makes it anew for every new leader and every
-- `pgsched migrate`.

-- Every queue that anything is set for has its bit here (pgsched.queue_bit). A bit too many costs a look-up for each run of
-- a queue; one too few would let runs pass a limit: bits are taken out only while nobody changes the table
-- (pgsched.forget_gates).
CREATE SEQUENCE pgsched.gated_queues MINVALUE 0 START 0;
GRANT SELECT ON SEQUENCE pgsched.gated_queues TO PUBLIC;

-- Milliseconds since 1970 until which some worker may be asleep, and wants to be notified. While all workers are busy,
-- nobody asks for it.
CREATE SEQUENCE pgsched.asleep_until MINVALUE 0 MAXVALUE 9000000000000 START 0;
GRANT SELECT ON SEQUENCE pgsched.asleep_until TO PUBLIC;

-- When a run was last announced although a transaction in progress had announced another of its queue. It is believed for
-- 20 ms, so that there is nothing to make anew.
CREATE SEQUENCE pgsched.told_at MINVALUE 0 MAXVALUE 9000000000000 START 0;
GRANT SELECT ON SEQUENCE pgsched.told_at TO PUBLIC;
