-- What is kept about the past: figures, archives, alerts, and who changed what.

-- How many runs ended and how long they took, by minute and by hour: what charts show after the rows are gone.
--
-- Written by whoever holds the row of rollup_mark (the leader): each ending is counted once, in the transaction that moves
-- the mark behind it. Minutes do not tell jobs apart (job_id 0); hours do, and 0 there means no job.
-- The rows `of all` tell only outcomes apart (queue and task are empty): a chart of everything reads few of them.
CREATE TABLE pgsched.rollups (
    width      text NOT NULL CHECK (width IN ('minute', 'hour', 'minute of all', 'hour of all')),
    from_at    timestamptz NOT NULL,
    job_id     bigint NOT NULL,
    queue      text NOT NULL,
    task       text NOT NULL,       -- of Python and command runs; of the others the kind, in brackets
    state      text NOT NULL,
    runs       bigint NOT NULL,
    started    bigint NOT NULL,     -- of them, those that ran at all
    retried    bigint NOT NULL,     -- of those, in more than one attempt
    duration_s double precision NOT NULL,  -- sums, of the last attempt
    wait_s     double precision NOT NULL,  -- from being due to the start
    late_s     double precision NOT NULL,  -- from the slot to the start, of first attempts
    late       bigint NOT NULL,     -- how many late_s is of
    late_max_s double precision,
    -- how many took less than 1, 2, 4, ... ms (pgsched.bin_of): 26 bins, the last for all from 16,777 s on
    durations  bigint[] NOT NULL,
    waits      bigint[] NOT NULL,
    lates      bigint[] NOT NULL,
    last_at    timestamptz NOT NULL,
    PRIMARY KEY (width, from_at, job_id, queue, task, state)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- Every run that ended at or before counted_until is counted, and none that ended later.
CREATE TABLE pgsched.rollup_mark (
    name          text PRIMARY KEY DEFAULT 'runs' CHECK (name = 'runs'),
    counted_until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
INSERT INTO pgsched.rollup_mark DEFAULT VALUES;

-- How long things are kept: one row for everything. Of ended runs for each outcome, by job, else by queue, else by this.
--
-- keep: {"succeeded": "1 day", "dead": "90 days", "any": "7 days"}; its keys are outcomes, and `any` for all that are not
-- named. What a job says goes before what its queue says, and that before what holds for everything; within each an
-- outcome that is named goes before `any`.
CREATE TABLE pgsched.retention (
    name         text PRIMARY KEY DEFAULT 'everything' CHECK (name = 'everything'),
    keep         jsonb NOT NULL DEFAULT '{"any": "7 days"}',
    archive      boolean NOT NULL DEFAULT false,  -- runs that go are put into pgsched.archived_runs
    -- of the figures in pgsched.rollups
    keep_minutes interval NOT NULL DEFAULT '3 days' CHECK (keep_minutes BETWEEN '1 hour' AND '10 years'),
    keep_hours   interval NOT NULL DEFAULT '400 days' CHECK (keep_hours BETWEEN '1 day' AND '100 years'),
    -- Of pgsched.audit. Only the owner of the tables deletes from the audit; the leader asks him to (prune_audit).
    keep_audit   interval NOT NULL DEFAULT '400 days' CHECK (keep_audit BETWEEN '1 day' AND '1000 years')
);
INSERT INTO pgsched.retention DEFAULT VALUES;

-- Runs that went, if the settings say so: written in the transaction that deletes them. `run` is the whole row with its
-- attempts and its output. Nothing in pgsched reads this table; partition, move or empty it as you like.
CREATE TABLE pgsched.archived_runs (
    run_id       bigint PRIMARY KEY,
    job_id       bigint,
    job          text,
    queue        text NOT NULL,
    task         text NOT NULL,
    state        text NOT NULL,
    scheduled_at timestamptz,
    finished_at  timestamptz NOT NULL,
    archived_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    run          jsonb NOT NULL
);

-- Alerts: the incidents that were found in watched jobs, one row for each. The leader looks every few seconds; while there
-- is no leader, any worker does (sql/alerts.sql). job_id 0: the whole system. The row outlives its job.
CREATE TABLE pgsched.alerts (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id    bigint NOT NULL,
    job       text,
    kind      text NOT NULL CHECK (kind IN ('failures', 'lateness', 'duration', 'silence', 'no_leader', 'test')),
    opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at timestamptz,
    details   text NOT NULL,
    run_id    bigint,  -- the run that gave rise to it
    recovery  text     -- why it was closed
);

-- What was told, to whom: one row for each event of an incident and each sink that a process has, made by that process.
CREATE TABLE pgsched.alert_deliveries (
    alert_id     bigint NOT NULL REFERENCES pgsched.alerts ON DELETE CASCADE,
    event        text NOT NULL CHECK (event IN ('opened', 'closed')),
    sink         text NOT NULL,  -- log, or webhook or command and what tells it from others, never a secret
    attempts     integer NOT NULL DEFAULT 0,
    next_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    delivered_at timestamptz,
    error        text,
    PRIMARY KEY (alert_id, event, sink)
);

-- Who changed what, and when (23_rights.sql).
CREATE TABLE pgsched.audit (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    who         text NOT NULL DEFAULT session_user,
    acting_as   text,  -- the role that the session had set, null: none
    application text DEFAULT current_setting('application_name'),
    address     inet DEFAULT inet_client_addr(),
    action      text NOT NULL,
    what        text NOT NULL CHECK (what IN ('job', 'run', 'backfill', 'queue', 'limit', 'pause', 'retention')),
    name        text NOT NULL,
    change      jsonb  -- of an edit {column: [before, after]}, else what was made, taken away or asked for
);
