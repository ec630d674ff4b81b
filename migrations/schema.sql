-- The whole schema after all revisions: written by `python -m pgsched.db.schema.dump`, not by hand.
-- Read this to see what is there; read the revisions (1000_initial/*.sql and later ones) to see why.

SET check_function_bodies = off;

CREATE SCHEMA pgsched;

-- sequences

CREATE SEQUENCE pgsched.asleep_until MINVALUE 0 MAXVALUE 9000000000000 START 0;
CREATE SEQUENCE pgsched.fences MINVALUE 1 MAXVALUE 9223372036854775807 START 1;
CREATE SEQUENCE pgsched.gated_queues MINVALUE 0 MAXVALUE 9223372036854775807 START 0;
CREATE SEQUENCE pgsched.leader_looks_at MINVALUE 0 MAXVALUE 9000000000000 START 0;
CREATE SEQUENCE pgsched.store_versions MINVALUE 0 MAXVALUE 9223372036854775807 START 0;
CREATE SEQUENCE pgsched.tasks_with_options MINVALUE 0 MAXVALUE 9223372036854775807 START 0;
CREATE SEQUENCE pgsched.told_at MINVALUE 0 MAXVALUE 9223372036854775807 START 0;

-- tables

CREATE TABLE pgsched.alert_defaults (
    name text NOT NULL DEFAULT 'everything'::text,
    alert_after_failures integer,
    max_lateness interval,
    max_duration interval,
    expect_every interval,
    finish_by interval,
    alert_to text[],
    dead_runs integer,
    dead_runs_within interval NOT NULL DEFAULT '01:00:00'::interval,
    CONSTRAINT alert_defaults_pkey PRIMARY KEY (name),
    CONSTRAINT alert_defaults_dead_runs_check CHECK (dead_runs >= 1 AND dead_runs <= 10000),
    CONSTRAINT alert_defaults_dead_runs_within_check CHECK (dead_runs_within >= '00:00:01'::interval AND dead_runs_within <= '31 days'::interval),
    CONSTRAINT alert_defaults_name_check CHECK (name = 'everything'::text)
);

CREATE TABLE pgsched.alert_deliveries (
    alert_id bigint NOT NULL,
    event text NOT NULL,
    sink text NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    next_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    delivered_at timestamp with time zone,
    error text,
    CONSTRAINT alert_deliveries_pkey PRIMARY KEY (alert_id, event, sink),
    CONSTRAINT alert_deliveries_event_check CHECK (event = ANY (ARRAY['opened'::text, 'closed'::text]))
);

CREATE TABLE pgsched.alerts (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    job_id bigint NOT NULL,
    job text,
    kind text NOT NULL,
    opened_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    closed_at timestamp with time zone,
    details text NOT NULL,
    run_id bigint,
    recovery text,
    alert_to text[],
    CONSTRAINT alerts_pkey PRIMARY KEY (id),
    CONSTRAINT alerts_kind_check CHECK (kind = ANY (ARRAY['failures'::text, 'lateness'::text, 'duration'::text, 'silence'::text, 'unfinished'::text, 'paused'::text, 'dead_runs'::text, 'no_leader'::text, 'test'::text]))
);

CREATE TABLE pgsched.archived_runs (
    run_id bigint NOT NULL,
    job_id bigint,
    job text,
    queue text NOT NULL,
    task text NOT NULL,
    state text NOT NULL,
    scheduled_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    archived_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    run jsonb NOT NULL,
    outside_name text,
    CONSTRAINT archived_runs_pkey PRIMARY KEY (run_id, finished_at)
);

CREATE TABLE pgsched.attempts (
    run_id bigint NOT NULL,
    token uuid NOT NULL,
    attempt integer NOT NULL,
    outcome text NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    worker_id bigint,
    worker text,
    error text,
    traceback text,
    log_tail text,
    CONSTRAINT attempts_pkey PRIMARY KEY (run_id, token),
    CONSTRAINT attempts_outcome CHECK (outcome = ANY (ARRAY['succeeded'::text, 'failed'::text, 'timed_out'::text, 'crashed'::text, 'cancelled'::text, 'interrupted'::text])),
    CONSTRAINT attempts_texts_size CHECK (COALESCE(octet_length(error), 0) <= 65536 AND COALESCE(octet_length(traceback), 0) <= 262144 AND COALESCE(octet_length(log_tail), 0) <= 262144 AND COALESCE(octet_length(worker), 0) <= 1024)
) WITH (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

CREATE TABLE pgsched.audit (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    who text NOT NULL DEFAULT SESSION_USER,
    acting_as text,
    application text DEFAULT current_setting('application_name'::text),
    address inet DEFAULT inet_client_addr(),
    action text NOT NULL,
    what text NOT NULL,
    name text NOT NULL,
    change jsonb,
    for_user text,
    CONSTRAINT audit_pkey PRIMARY KEY (id),
    CONSTRAINT audit_what_check CHECK (what = ANY (ARRAY['job'::text, 'run'::text, 'backfill'::text, 'queue'::text, 'limit'::text, 'pause'::text, 'retention'::text, 'worker'::text, 'alert'::text, 'key'::text, 'task'::text, 'lock'::text, 'names'::text, 'database'::text, 'calendar'::text, 'file'::text]))
);

CREATE TABLE pgsched.backfills (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    job_id bigint NOT NULL,
    job text NOT NULL,
    schedule text NOT NULL,
    timezone text NOT NULL,
    anchor_at timestamp with time zone NOT NULL,
    from_at timestamp with time zone NOT NULL,
    to_at timestamp with time zone NOT NULL,
    mode text NOT NULL DEFAULT 'missing'::text,
    max_active integer NOT NULL DEFAULT 1,
    reverse boolean NOT NULL DEFAULT false,
    priority smallint NOT NULL DEFAULT 9,
    slots bigint,
    cursor_at timestamp with time zone,
    considered bigint NOT NULL DEFAULT 0,
    started bigint NOT NULL DEFAULT 0,
    requested_by text NOT NULL DEFAULT SESSION_USER,
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    cancelled_at timestamp with time zone,
    cancelled_by text,
    finished_at timestamp with time zone,
    error text,
    together bigint,
    after_backfill bigint,
    CONSTRAINT backfills_pkey PRIMARY KEY (id),
    CONSTRAINT backfills_max_active CHECK (max_active >= 1 AND max_active <= 1000),
    CONSTRAINT backfills_mode CHECK (mode = ANY (ARRAY['missing'::text, 'failed'::text, 'unsuccessful'::text, 'all'::text])),
    CONSTRAINT backfills_order CHECK (from_at < to_at),
    CONSTRAINT backfills_priority CHECK (priority >= 0 AND priority <= 9),
    CONSTRAINT backfills_range CHECK (
CASE
    WHEN finished_at IS NOT NULL OR from_at < '1970-01-01 00:00:00+00'::timestamp with time zone OR to_at > '9000-01-01 00:00:00+00'::timestamp with time zone THEN true
    ELSE (to_at - from_at) <= '36525 days'::interval
END),
    CONSTRAINT backfills_slots CHECK (slots >= 1 AND slots <= 100000),
    CONSTRAINT backfills_texts_size CHECK (COALESCE(octet_length(error), 0) <= 65536 AND COALESCE(octet_length(cancelled_by), 0) <= 65536)
) WITH (fillfactor=50);

CREATE TABLE pgsched.buckets (
    name text NOT NULL,
    tokens double precision NOT NULL,
    at timestamp with time zone NOT NULL,
    unstarted integer NOT NULL,
    CONSTRAINT buckets_pkey PRIMARY KEY (name)
) WITH (fillfactor=50);

CREATE TABLE pgsched.calendar_times (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    calendar text NOT NULL,
    from_date date,
    until_date date,
    weekdays integer[],
    from_time time without time zone,
    until_time time without time zone,
    reason text,
    CONSTRAINT calendar_times_pkey PRIMARY KEY (id),
    CONSTRAINT calendar_times_dates CHECK ((from_date IS NULL) = (until_date IS NULL) AND until_date >= from_date AND from_date >= '1970-01-01'::date AND until_date < '9000-01-01'::date),
    CONSTRAINT calendar_times_reason CHECK (length(reason) <= 10000),
    CONSTRAINT calendar_times_something CHECK (from_date IS NOT NULL OR weekdays IS NOT NULL OR from_time IS NOT NULL),
    CONSTRAINT calendar_times_times CHECK ((from_time IS NULL) = (until_time IS NULL) AND until_time > from_time),
    CONSTRAINT calendar_times_weekdays CHECK (cardinality(weekdays) >= 1 AND cardinality(weekdays) <= 7 AND weekdays <@ '{0,1,2,3,4,5,6}'::integer[])
);

CREATE TABLE pgsched.calendars (
    name text NOT NULL,
    description text,
    owner name NOT NULL DEFAULT CURRENT_USER,
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    version uuid NOT NULL DEFAULT gen_random_uuid(),
    replan boolean NOT NULL DEFAULT false,
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    CONSTRAINT calendars_pkey PRIMARY KEY (name),
    CONSTRAINT calendars_description CHECK (length(description) <= 65536),
    CONSTRAINT calendars_name CHECK (length(name) >= 1 AND length(name) <= 200)
);

CREATE TABLE pgsched.dependencies (
    run_id bigint NOT NULL,
    parent_id bigint NOT NULL,
    on_failure text NOT NULL DEFAULT 'cancel'::text,
    any_of boolean NOT NULL DEFAULT false,
    state text NOT NULL DEFAULT 'open'::text,
    CONSTRAINT dependencies_pkey PRIMARY KEY (run_id, parent_id),
    CONSTRAINT dependencies_check CHECK (run_id <> parent_id),
    CONSTRAINT dependencies_on_failure_check CHECK (on_failure = ANY (ARRAY['cancel'::text, 'run_anyway'::text, 'wait'::text])),
    CONSTRAINT dependencies_state_check CHECK (state = ANY (ARRAY['open'::text, 'met'::text, 'failed'::text]))
) WITH (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05);

CREATE TABLE pgsched.file_entries (
    owner text NOT NULL,
    what text NOT NULL,
    name text NOT NULL,
    declared_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    object_id bigint,
    decides text[] NOT NULL DEFAULT '{}'::text[],
    run_at timestamp with time zone,
    CONSTRAINT file_entries_pkey PRIMARY KEY (owner, what, name),
    CONSTRAINT file_entries_decides CHECK (decides <@ '{mode,paused}'::text[] AND cardinality(decides) <= 2),
    CONSTRAINT file_entries_name CHECK (length(name) <= 500),
    CONSTRAINT file_entries_what CHECK (what = ANY (ARRAY['job'::text, 'queue'::text, 'limit'::text, 'pause'::text, 'calendar'::text, 'retention'::text, 'alerts'::text, 'done'::text]))
);

CREATE TABLE pgsched.file_owners (
    name text NOT NULL,
    role name NOT NULL DEFAULT CURRENT_USER,
    applied_at timestamp with time zone,
    CONSTRAINT file_owners_pkey PRIMARY KEY (name),
    CONSTRAINT file_owners_name CHECK (length(name) >= 1 AND length(name) <= 200)
);

CREATE TABLE pgsched.identity (
    name text NOT NULL DEFAULT 'database'::text,
    database uuid NOT NULL DEFAULT gen_random_uuid(),
    fleet uuid NOT NULL DEFAULT gen_random_uuid(),
    CONSTRAINT identity_pkey PRIMARY KEY (name),
    CONSTRAINT identity_name_check CHECK (name = 'database'::text)
);

CREATE TABLE pgsched.item_consumers (
    queue bigint NOT NULL,
    session bigint NOT NULL,
    waiting_since timestamp with time zone,
    CONSTRAINT item_consumers_pkey PRIMARY KEY (queue, session)
) WITH (fillfactor=50);

CREATE TABLE pgsched.item_queues (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL,
    owner name NOT NULL,
    looked_at timestamp with time zone NOT NULL DEFAULT '-infinity'::timestamp with time zone,
    CONSTRAINT item_queues_pkey PRIMARY KEY (id),
    CONSTRAINT item_queues_name_key UNIQUE (name),
    CONSTRAINT item_queues_name_check CHECK (length(name) >= 1 AND length(name) <= 200)
) WITH (fillfactor=50);

CREATE TABLE pgsched.items (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    queue bigint NOT NULL,
    session bigint,
    available_at timestamp with time zone NOT NULL,
    put_at timestamp with time zone NOT NULL,
    held_at timestamp with time zone,
    token uuid,
    attempt integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 0,
    priority smallint NOT NULL DEFAULT 100,
    value jsonb NOT NULL,
    error text,
    CONSTRAINT items_pkey PRIMARY KEY (id),
    CONSTRAINT items_check CHECK ((session IS NULL) = (token IS NULL)),
    CONSTRAINT items_error_check CHECK (octet_length(error) <= 65536),
    CONSTRAINT items_priority_check CHECK (priority >= 0 AND priority <= 999)
) WITH (autovacuum_analyze_scale_factor=0.05, autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);

CREATE TABLE pgsched.job_calendars (
    job_id bigint NOT NULL,
    from_date date NOT NULL,
    until_date date NOT NULL,
    reason text,
    CONSTRAINT job_calendars_pkey PRIMARY KEY (job_id, from_date),
    CONSTRAINT job_calendars_dates CHECK (from_date >= '1970-01-01'::date AND until_date < '9000-01-01'::date),
    CONSTRAINT job_calendars_order CHECK (until_date >= from_date)
);

CREATE TABLE pgsched.jobs (
    id bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY,
    name text NOT NULL,
    description text,
    kind text NOT NULL DEFAULT 'task'::text,
    task text NOT NULL,
    args jsonb NOT NULL DEFAULT '{}'::jsonb,
    queue text,
    priority smallint,
    tags text[],
    schedule text,
    timezone text NOT NULL DEFAULT 'UTC'::text,
    run_at timestamp with time zone,
    starts_at timestamp with time zone,
    ends_at timestamp with time zone,
    max_runs integer,
    jitter interval NOT NULL DEFAULT '00:00:00'::interval,
    delete_after_run boolean NOT NULL DEFAULT false,
    overlap text NOT NULL DEFAULT 'skip'::text,
    max_buffer integer NOT NULL DEFAULT 100,
    retry_within interval,
    misfire_after interval NOT NULL DEFAULT '00:01:00'::interval,
    catch_up text NOT NULL DEFAULT 'latest'::text,
    max_catch_up integer NOT NULL DEFAULT 100,
    catch_up_window interval NOT NULL DEFAULT '1 day'::interval,
    start_deadline interval,
    max_attempts integer,
    timeout interval,
    kill_after interval,
    backoff text,
    backoff_base interval,
    backoff_max interval,
    backoff_jitter double precision,
    success_codes integer[] NOT NULL DEFAULT '{0}'::integer[],
    retry_codes integer[],
    dead_codes integer[],
    concurrency_key text,
    concurrency_limit integer,
    after_jobs bigint[],
    paused boolean NOT NULL DEFAULT false,
    paused_at timestamp with time zone,
    paused_by text,
    paused_reason text,
    resume_from text NOT NULL DEFAULT 'now'::text,
    declared_by text,
    owner name NOT NULL DEFAULT CURRENT_USER,
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    anchor_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    decided_until timestamp with time zone NOT NULL DEFAULT '-infinity'::timestamp with time zone,
    next_run_at timestamp with time zone,
    run_count bigint NOT NULL DEFAULT 0,
    error text,
    error_at timestamp with time zone,
    keep jsonb,
    alert_after_failures integer,
    max_lateness interval,
    max_duration interval,
    expect_every interval,
    mode text NOT NULL DEFAULT 'run'::text,
    calendar text,
    on_excluded text NOT NULL DEFAULT 'skip'::text,
    after_match text NOT NULL DEFAULT 'same'::text,
    pause_after_failures integer,
    finish_by interval,
    ping_url text,
    alert_to text[],
    resumed_at timestamp with time zone,
    shifts jsonb,
    CONSTRAINT jobs_pkey PRIMARY KEY (id),
    CONSTRAINT jobs_name_key UNIQUE (name),
    CONSTRAINT jobs_args_size CHECK (pg_column_size(args) <= 1048576),
    CONSTRAINT jobs_backoff CHECK (backoff = ANY (ARRAY['exponential'::text, 'fixed'::text, 'linear'::text])),
    CONSTRAINT jobs_backoff_jitter CHECK (backoff_jitter >= 0::double precision AND backoff_jitter <= 1::double precision),
    CONSTRAINT jobs_bookkeeping CHECK (anchor_at >= '1900-01-01 00:00:00+00'::timestamp with time zone AND anchor_at <= '9000-01-01 00:00:00+00'::timestamp with time zone AND (decided_until = '-infinity'::timestamp with time zone OR decided_until >= '1900-01-01 00:00:00+00'::timestamp with time zone AND decided_until <= '9000-01-01 00:00:00+00'::timestamp with time zone) AND (next_run_at IS NULL OR next_run_at >= '1900-01-01 00:00:00+00'::timestamp with time zone AND next_run_at <= '9100-01-01 00:00:00+00'::timestamp with time zone) AND run_count >= 0 AND run_count <= '1000000000000000'::bigint),
    CONSTRAINT jobs_catch_up CHECK (catch_up = ANY (ARRAY['latest'::text, 'skip'::text, 'earliest'::text, 'all'::text])),
    CONSTRAINT jobs_kind CHECK (kind = ANY (ARRAY['task'::text, 'command'::text, 'shell'::text, 'sql'::text, 'http'::text])),
    CONSTRAINT jobs_max_attempts CHECK (max_attempts >= 1 AND max_attempts <= 1000),
    CONSTRAINT jobs_name_length CHECK (length(name) >= 1 AND length(name) <= 200),
    CONSTRAINT jobs_one_kind_of_time CHECK (schedule IS NULL OR run_at IS NULL),
    CONSTRAINT jobs_overlap CHECK (overlap = ANY (ARRAY['allow'::text, 'skip'::text, 'buffer_one'::text, 'buffer_all'::text, 'replace'::text, 'terminate'::text])),
    CONSTRAINT jobs_priority CHECK (priority >= 0 AND priority <= 9),
    CONSTRAINT jobs_queue_length CHECK (length(queue) >= 1 AND length(queue) <= 100),
    CONSTRAINT jobs_task_length CHECK (length(task) >= 1 AND length(task) <= 65536),
    CONSTRAINT jobs_texts_size CHECK (COALESCE(octet_length(error), 0) <= 65536)
) WITH (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05, fillfactor=70);

CREATE TABLE pgsched.kept_keys (
    scope text NOT NULL,
    key text NOT NULL,
    run_id bigint,
    task text NOT NULL,
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamp with time zone NOT NULL,
    state text,
    result jsonb,
    error text,
    finished_at timestamp with time zone,
    owner name,
    met boolean,
    CONSTRAINT kept_keys_pkey PRIMARY KEY (scope, key)
);

CREATE TABLE pgsched.leader (
    term bigint NOT NULL,
    holder text NOT NULL,
    hostname text NOT NULL,
    pid integer NOT NULL,
    elected_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    seen_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    resigned_at timestamp with time zone,
    steady_since timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    by_lock boolean NOT NULL DEFAULT false,
    backend integer,
    CONSTRAINT leader_pkey PRIMARY KEY (term),
    CONSTRAINT leader_texts_size CHECK (octet_length(holder) <= 1024 AND octet_length(hostname) <= 1024)
) WITH (fillfactor=50);

CREATE TABLE pgsched.limits (
    name text NOT NULL,
    concurrency integer,
    rate integer,
    rate_period interval,
    rate_burst integer,
    ordered boolean NOT NULL DEFAULT false,
    weight integer NOT NULL DEFAULT 1,
    applied_at timestamp with time zone,
    declared_by text,
    CONSTRAINT limits_pkey PRIMARY KEY (name),
    CONSTRAINT limits_concurrency_check CHECK (concurrency >= 0),
    CONSTRAINT limits_name CHECK (length(name) >= 1 AND length(name) <= 500 AND name !~ '^job(:|$)'::text),
    CONSTRAINT limits_rate CHECK ((rate IS NULL) = (rate_period IS NULL) AND (rate IS NOT NULL OR rate_burst IS NULL)),
    CONSTRAINT limits_rate_burst_check CHECK (rate_burst > 0),
    CONSTRAINT limits_rate_check CHECK (rate > 0),
    CONSTRAINT limits_rate_period CHECK (rate_period >= '00:00:00.001'::interval AND rate_period <= '31 days'::interval),
    CONSTRAINT limits_weight_check CHECK (weight >= 1 AND weight <= 1000)
);

CREATE TABLE pgsched.lock_losses (
    session bigint NOT NULL,
    fence bigint NOT NULL,
    CONSTRAINT lock_losses_pkey PRIMARY KEY (session, fence)
);

CREATE TABLE pgsched.lock_places (
    lock text COLLATE "C" NOT NULL,
    place bigint NOT NULL,
    session bigint NOT NULL,
    token uuid NOT NULL,
    mode text NOT NULL,
    fence bigint,
    note text,
    since timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    give_up_at timestamp with time zone,
    granted_at timestamp with time zone,
    left_at timestamp with time zone,
    number bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    CONSTRAINT lock_places_pkey PRIMARY KEY (lock, place),
    CONSTRAINT lock_places_token_key UNIQUE (token),
    CONSTRAINT lock_places_check CHECK ((fence IS NULL) = (granted_at IS NULL)),
    CONSTRAINT lock_places_mode_check CHECK (mode = ANY (ARRAY['exclusive'::text, 'shared'::text, 'counted'::text])),
    CONSTRAINT lock_places_note_check CHECK (octet_length(note) <= 65536)
) WITH (fillfactor=70);

CREATE TABLE pgsched.locks (
    name text COLLATE "C" NOT NULL,
    owner name NOT NULL,
    kind text NOT NULL DEFAULT 'lock'::text,
    capacity integer,
    last_place bigint NOT NULL DEFAULT 0,
    used_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    number bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    CONSTRAINT locks_pkey PRIMARY KEY (name),
    CONSTRAINT locks_capacity_check CHECK (capacity >= 1 AND capacity <= 10000),
    CONSTRAINT locks_kind_check CHECK (kind = ANY (ARRAY['lock'::text, 'election'::text])),
    CONSTRAINT locks_name_check CHECK (length(name) >= 1 AND length(name) <= 200)
) WITH (fillfactor=50);

CREATE TABLE pgsched.name_grants (
    prefix text NOT NULL,
    role name NOT NULL,
    CONSTRAINT name_grants_pkey PRIMARY KEY (prefix, role),
    CONSTRAINT name_grants_prefix_check CHECK (length(prefix) >= 1 AND length(prefix) <= 200)
);

CREATE TABLE pgsched.next_slots (
    job_id bigint NOT NULL,
    schedule text NOT NULL,
    timezone text NOT NULL,
    anchor_at timestamp with time zone NOT NULL,
    after_at timestamp with time zone NOT NULL,
    slots timestamp with time zone[] NOT NULL,
    offsets integer[] NOT NULL,
    rules text NOT NULL,
    refresh_at timestamp with time zone,
    nominals timestamp with time zone[] NOT NULL DEFAULT '{}'::timestamp with time zone[],
    excluded text,
    CONSTRAINT next_slots_pkey PRIMARY KEY (job_id),
    CONSTRAINT next_slots_few CHECK (cardinality(slots) <= 100 AND cardinality(offsets) = cardinality(slots))
) WITH (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05, fillfactor=50);

CREATE TABLE pgsched.passed_over (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    job_id bigint NOT NULL,
    schedule text,
    timezone text NOT NULL,
    anchor_at timestamp with time zone NOT NULL,
    after_at timestamp with time zone NOT NULL,
    until_at timestamp with time zone NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    calendar text,
    on_excluded text NOT NULL DEFAULT 'skip'::text,
    shifts jsonb,
    CONSTRAINT passed_over_pkey PRIMARY KEY (id),
    CONSTRAINT passed_over_state_check CHECK (state = ANY (ARRAY['skipped'::text, 'missed'::text]))
);

CREATE TABLE pgsched.pauses (
    what text NOT NULL,
    name text NOT NULL DEFAULT ''::text,
    paused_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    paused_by text NOT NULL DEFAULT SESSION_USER,
    reason text,
    resume_at timestamp with time zone,
    waits_for integer,
    CONSTRAINT pauses_pkey PRIMARY KEY (what, name),
    CONSTRAINT pauses_all_has_no_name CHECK ((what = 'all'::text) = (name = ''::text)),
    CONSTRAINT pauses_name_check CHECK (length(name) <= 200),
    CONSTRAINT pauses_reason_check CHECK (length(reason) <= 10000),
    CONSTRAINT pauses_resume_at_check CHECK (resume_at >= '1970-01-01 00:00:00+00'::timestamp with time zone AND resume_at <= '9000-01-01 00:00:00+00'::timestamp with time zone),
    CONSTRAINT pauses_what_check CHECK (what = ANY (ARRAY['all'::text, 'queue'::text, 'task'::text, 'limit'::text]))
);

CREATE TABLE pgsched.queues (
    name text NOT NULL,
    concurrency_limit integer,
    rate integer,
    rate_period interval,
    rate_burst integer,
    max_depth bigint,
    on_full text NOT NULL DEFAULT 'reject'::text,
    fair boolean NOT NULL DEFAULT false,
    ageing interval,
    applied_at timestamp with time zone,
    limited boolean NOT NULL GENERATED ALWAYS AS (concurrency_limit IS NOT NULL OR rate IS NOT NULL OR fair OR ageing IS NOT NULL) STORED,
    keep jsonb,
    CONSTRAINT queues_pkey PRIMARY KEY (name),
    CONSTRAINT queues_ageing_check CHECK (ageing >= '00:00:01'::interval AND ageing <= '10 years'::interval),
    CONSTRAINT queues_concurrency_limit_check CHECK (concurrency_limit >= 0),
    CONSTRAINT queues_max_depth_check CHECK (max_depth > 0),
    CONSTRAINT queues_name CHECK (length(name) >= 1 AND length(name) <= 100),
    CONSTRAINT queues_on_full_check CHECK (on_full = ANY (ARRAY['reject'::text, 'shed_oldest'::text])),
    CONSTRAINT queues_rate CHECK ((rate IS NULL) = (rate_period IS NULL) AND (rate IS NOT NULL OR rate_burst IS NULL)),
    CONSTRAINT queues_rate_burst_check CHECK (rate_burst > 0),
    CONSTRAINT queues_rate_check CHECK (rate > 0),
    CONSTRAINT queues_rate_period CHECK (rate_period >= '00:00:00.001'::interval AND rate_period <= '31 days'::interval)
);

CREATE TABLE pgsched.refunds (
    run_id bigint NOT NULL,
    claimed_at timestamp with time zone NOT NULL,
    queue text NOT NULL,
    concurrency_key text,
    CONSTRAINT refunds_pkey PRIMARY KEY (run_id, claimed_at)
);

CREATE TABLE pgsched.retention (
    name text NOT NULL DEFAULT 'everything'::text,
    keep jsonb NOT NULL DEFAULT '{"any": "7 days"}'::jsonb,
    archive boolean NOT NULL DEFAULT false,
    keep_minutes interval NOT NULL DEFAULT '3 days'::interval,
    keep_hours interval NOT NULL DEFAULT '400 days'::interval,
    keep_audit interval NOT NULL DEFAULT '400 days'::interval,
    CONSTRAINT retention_pkey PRIMARY KEY (name),
    CONSTRAINT retention_keep_audit_check CHECK (keep_audit >= '1 day'::interval AND keep_audit <= '1000 years'::interval),
    CONSTRAINT retention_keep_hours_check CHECK (keep_hours >= '1 day'::interval AND keep_hours <= '100 years'::interval),
    CONSTRAINT retention_keep_minutes_check CHECK (keep_minutes >= '01:00:00'::interval AND keep_minutes <= '10 years'::interval),
    CONSTRAINT retention_name_check CHECK (name = 'everything'::text)
);

CREATE TABLE pgsched.role_room (
    what text COLLATE "C" NOT NULL,
    owner name NOT NULL,
    counted_at bigint NOT NULL,
    room_until bigint NOT NULL,
    CONSTRAINT role_room_pkey PRIMARY KEY (what, owner, counted_at)
);

CREATE TABLE pgsched.rollup_mark (
    name text NOT NULL DEFAULT 'runs'::text,
    counted_until timestamp with time zone NOT NULL DEFAULT '-infinity'::timestamp with time zone,
    CONSTRAINT rollup_mark_pkey PRIMARY KEY (name),
    CONSTRAINT rollup_mark_name_check CHECK (name = 'runs'::text)
) WITH (fillfactor=50);

CREATE TABLE pgsched.rollups (
    width text NOT NULL,
    from_at timestamp with time zone NOT NULL,
    job_id bigint NOT NULL,
    queue text NOT NULL,
    task text NOT NULL,
    state text NOT NULL,
    runs bigint NOT NULL,
    started bigint NOT NULL,
    retried bigint NOT NULL,
    duration_s double precision NOT NULL,
    wait_s double precision NOT NULL,
    late_s double precision NOT NULL,
    late bigint NOT NULL,
    late_max_s double precision,
    durations bigint[] NOT NULL,
    waits bigint[] NOT NULL,
    lates bigint[] NOT NULL,
    last_at timestamp with time zone NOT NULL,
    CONSTRAINT rollups_pkey PRIMARY KEY (width, from_at, job_id, queue, task, state),
    CONSTRAINT rollups_width_check CHECK (width = ANY (ARRAY['minute'::text, 'hour'::text, 'minute of all'::text, 'hour of all'::text]))
) WITH (autovacuum_vacuum_scale_factor=0.05, fillfactor=70);

CREATE TABLE pgsched.run_logs (
    run_id bigint NOT NULL,
    attempt integer NOT NULL,
    seq integer NOT NULL,
    at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    stream text NOT NULL,
    chunk text NOT NULL,
    token uuid,
    CONSTRAINT run_logs_pkey PRIMARY KEY (run_id, attempt, seq),
    CONSTRAINT run_logs_chunk_size CHECK (octet_length(chunk) <= 1048576),
    CONSTRAINT run_logs_stream CHECK (stream = ANY (ARRAY['stdout'::text, 'stderr'::text, 'log'::text, 'cut'::text]))
) WITH (autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.05, toast.autovacuum_vacuum_cost_delay=0, toast.autovacuum_vacuum_scale_factor=0.05);

CREATE TABLE pgsched.runs (
    id bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY,
    job_id bigint,
    scheduled_at timestamp with time zone,
    available_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    lease_until timestamp with time zone,
    worker_id bigint,
    token uuid,
    attempt integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    priority smallint NOT NULL,
    crashes smallint NOT NULL DEFAULT 0,
    phase smallint NOT NULL DEFAULT 2,
    state text NOT NULL DEFAULT 'queued'::text,
    queue text NOT NULL,
    kind text NOT NULL DEFAULT 'task'::text,
    task text NOT NULL,
    args jsonb NOT NULL DEFAULT '{}'::jsonb,
    origin text NOT NULL DEFAULT 'enqueue'::text,
    owner name,
    timeout interval,
    kill_after interval,
    backoff text,
    backoff_base interval,
    backoff_max interval,
    backoff_jitter double precision,
    expires_at timestamp with time zone,
    held_until timestamp with time zone,
    options jsonb,
    unique_key text,
    idempotency_key text,
    concurrency_key text,
    tags text[],
    cancel_requested_at timestamp with time zone,
    cancel_reason text,
    reason text,
    error text,
    result jsonb,
    progress jsonb,
    covers_from timestamp with time zone,
    covers_until timestamp with time zone,
    covers_count bigint,
    backfill_id bigint,
    covers_state text,
    covers_reason text,
    ready_at timestamp with time zone,
    has_children boolean,
    checked boolean,
    begun boolean,
    suspect boolean,
    reruns integer,
    keep interval,
    awaited boolean,
    interval_start timestamp with time zone,
    nominal_at timestamp with time zone,
    slot_zone text,
    CONSTRAINT runs_pkey PRIMARY KEY (id),
    CONSTRAINT runs_result_size CHECK (result IS NULL OR pg_column_size(result) <= 1048576),
    CONSTRAINT runs_state CHECK (
CASE state
    WHEN 'queued'::text THEN finished_at IS NULL
    WHEN 'running'::text THEN finished_at IS NULL AND token IS NOT NULL AND lease_until IS NOT NULL
    WHEN 'succeeded'::text THEN finished_at IS NOT NULL
    WHEN 'scheduled'::text THEN finished_at IS NULL
    WHEN 'waiting'::text THEN finished_at IS NULL
    ELSE finished_at IS NOT NULL AND (state = ANY (ARRAY['dead'::text, 'cancelled'::text, 'skipped'::text, 'missed'::text]))
END),
    CONSTRAINT runs_texts_size CHECK ((COALESCE(octet_length(error), 0) + COALESCE(octet_length(reason), 0)) <= 65536)
) WITH (autovacuum_analyze_scale_factor=0.05, autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, fillfactor=37);

CREATE TABLE pgsched.sessions (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    token uuid NOT NULL,
    name text NOT NULL,
    owner name NOT NULL,
    ttl interval NOT NULL,
    opened_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT sessions_pkey PRIMARY KEY (id),
    CONSTRAINT sessions_token_key UNIQUE (token),
    CONSTRAINT sessions_name_check CHECK (length(name) >= 1 AND length(name) <= 200),
    CONSTRAINT sessions_ttl_check CHECK (ttl >= '00:00:01'::interval AND ttl <= '1 day'::interval)
) WITH (fillfactor=50);

CREATE TABLE pgsched.set_aside (
    duty text NOT NULL,
    row_id text NOT NULL,
    error text NOT NULL,
    tries integer NOT NULL DEFAULT 1,
    since timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    next_at timestamp with time zone NOT NULL,
    CONSTRAINT set_aside_pkey PRIMARY KEY (duty, row_id),
    CONSTRAINT set_aside_texts_size CHECK (octet_length(duty) <= 100 AND octet_length(row_id) <= 4000 AND octet_length(error) <= 4000)
) WITH (fillfactor=50);

CREATE TABLE pgsched.store (
    key text COLLATE "C" NOT NULL,
    root text COLLATE "C" NOT NULL,
    value jsonb NOT NULL,
    version bigint NOT NULL,
    revision bigint NOT NULL,
    session bigint,
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    changed_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT store_pkey PRIMARY KEY (key)
) WITH (fillfactor=70);

CREATE TABLE pgsched.store_changes (
    root text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    value jsonb,
    changed_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT store_changes_pkey PRIMARY KEY (root, version)
);

CREATE TABLE pgsched.store_nodes (
    key text COLLATE "C" NOT NULL,
    made_at bigint NOT NULL,
    children bigint NOT NULL DEFAULT 0,
    CONSTRAINT store_nodes_pkey PRIMARY KEY (key)
) WITH (fillfactor=70);

CREATE TABLE pgsched.store_roots (
    root text COLLATE "C" NOT NULL,
    owner name NOT NULL,
    version bigint NOT NULL DEFAULT 0,
    kept_after bigint NOT NULL DEFAULT 0,
    keys bigint NOT NULL DEFAULT 0,
    look_at timestamp with time zone,
    watched_until timestamp with time zone NOT NULL DEFAULT clock_timestamp() + '00:01:00'::interval,
    changed_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    number bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    CONSTRAINT store_roots_pkey PRIMARY KEY (root)
) WITH (fillfactor=50);

CREATE TABLE pgsched.tasks (
    task text NOT NULL,
    app text NOT NULL,
    release text NOT NULL,
    options jsonb NOT NULL DEFAULT '{}'::jsonb,
    schema jsonb NOT NULL DEFAULT '{}'::jsonb,
    owner name NOT NULL,
    first_seen_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT tasks_pkey PRIMARY KEY (task, app, release),
    CONSTRAINT tasks_size CHECK (length(app) <= 200 AND length(task) >= 1 AND length(task) <= 200 AND length(release) <= 100 AND pg_column_size(options) <= 65536 AND pg_column_size(schema) <= 65536)
);

CREATE TABLE pgsched.turns (
    name text NOT NULL,
    CONSTRAINT turns_pkey PRIMARY KEY (name)
);

CREATE TABLE pgsched.workers (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL,
    hostname text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    app text,
    concurrency integer NOT NULL,
    queues text[],
    kinds text[] NOT NULL,
    tasks text[] NOT NULL,
    lease interval NOT NULL,
    started_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    seen_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    stopping_at timestamp with time zone,
    stopped_at timestamp with time zone,
    running integer NOT NULL DEFAULT 0,
    abandoned integer NOT NULL DEFAULT 0,
    blocked_at timestamp with time zone,
    blocked_by text,
    drain_asked_at timestamp with time zone,
    drain_asked_by text,
    clock_ahead_s double precision,
    tz_version text,
    pooler text,
    declares text[],
    lost_runs jsonb,
    releases text[],
    CONSTRAINT workers_pkey PRIMARY KEY (id),
    CONSTRAINT workers_declares_size CHECK (COALESCE(pg_column_size(declares), 0) <= 16777216),
    CONSTRAINT workers_lost_runs_size CHECK (COALESCE(pg_column_size(lost_runs), 0) <= 65536),
    CONSTRAINT workers_releases_size CHECK (COALESCE(pg_column_size(releases), 0) <= 16777216),
    CONSTRAINT workers_texts_size CHECK (octet_length(name) <= 1024 AND octet_length(hostname) <= 1024 AND octet_length(version) <= 1024 AND COALESCE(octet_length(app), 0) <= 1024 AND COALESCE(octet_length(blocked_by), 0) <= 65536 AND COALESCE(octet_length(drain_asked_by), 0) <= 1024 AND pg_column_size(tasks) <= 16777216 AND COALESCE(pg_column_size(queues), 0) <= 1048576)
) WITH (fillfactor=50);

-- references

ALTER TABLE pgsched.alert_deliveries ADD CONSTRAINT alert_deliveries_alert_id_fkey FOREIGN KEY (alert_id) REFERENCES pgsched.alerts(id) ON DELETE CASCADE;
ALTER TABLE pgsched.calendar_times ADD CONSTRAINT calendar_times_calendar_fkey FOREIGN KEY (calendar) REFERENCES pgsched.calendars(name) ON UPDATE CASCADE ON DELETE CASCADE;
ALTER TABLE pgsched.file_entries ADD CONSTRAINT file_entries_owner_fkey FOREIGN KEY (owner) REFERENCES pgsched.file_owners(name) ON UPDATE CASCADE;
ALTER TABLE pgsched.job_calendars ADD CONSTRAINT job_calendars_job_id_fkey FOREIGN KEY (job_id) REFERENCES pgsched.jobs(id) ON DELETE CASCADE;
ALTER TABLE pgsched.jobs ADD CONSTRAINT jobs_calendar_fkey FOREIGN KEY (calendar) REFERENCES pgsched.calendars(name) ON UPDATE CASCADE;
ALTER TABLE pgsched.lock_losses ADD CONSTRAINT lock_losses_session_fkey FOREIGN KEY (session) REFERENCES pgsched.sessions(id) ON DELETE CASCADE;
ALTER TABLE pgsched.lock_places ADD CONSTRAINT lock_places_lock_fkey FOREIGN KEY (lock) REFERENCES pgsched.locks(name) ON DELETE CASCADE;
ALTER TABLE pgsched.lock_places ADD CONSTRAINT lock_places_session_fkey FOREIGN KEY (session) REFERENCES pgsched.sessions(id) ON DELETE CASCADE;
ALTER TABLE pgsched.passed_over ADD CONSTRAINT passed_over_job_id_fkey FOREIGN KEY (job_id) REFERENCES pgsched.jobs(id) ON DELETE CASCADE;
ALTER TABLE pgsched.store ADD CONSTRAINT store_root_fkey FOREIGN KEY (root) REFERENCES pgsched.store_roots(root);
ALTER TABLE pgsched.store ADD CONSTRAINT store_session_fkey FOREIGN KEY (session) REFERENCES pgsched.sessions(id);
ALTER TABLE pgsched.store_changes ADD CONSTRAINT store_changes_root_fkey FOREIGN KEY (root) REFERENCES pgsched.store_roots(root) ON DELETE CASCADE;
ALTER TABLE pgsched.store_nodes ADD CONSTRAINT store_nodes_key_fkey FOREIGN KEY (key) REFERENCES pgsched.store(key) ON DELETE CASCADE;

-- functions

CREATE OR REPLACE FUNCTION pgsched.acting_for()
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT left(nullif(current_setting('pgsched.user', true), ''), 200)
    WHERE EXISTS (SELECT FROM pg_roles r
                  WHERE (r.rolname = 'pgsched_console'
                         OR r.oid = (SELECT c.relowner FROM pg_class c WHERE c.oid = 'pgsched.audit'::regclass))
                    AND pg_has_role(session_user, r.oid, 'MEMBER'))
$function$;

CREATE OR REPLACE FUNCTION pgsched.add_bins(a bigint[], b bigint[])
 RETURNS bigint[]
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT array_agg(coalesce(x, 0) + coalesce(y, 0) ORDER BY n) FROM unnest(a, b) WITH ORDINALITY u(x, y, n)
$function$;

CREATE OR REPLACE FUNCTION pgsched.add_to_bin(bins bigint[], bin integer, n numeric)
 RETURNS bigint[]
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    bins[bin] := bins[bin] + n;
    RETURN bins;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.after_jobs_of(options jsonb)
 RETURNS SETOF bigint
 LANGUAGE sql
 IMMUTABLE
AS $function$
    SELECT CASE WHEN a.item ~ '^[0-9]{1,18}$' THEN a.item::bigint END
    FROM pg_catalog.jsonb_array_elements_text(CASE pg_catalog.jsonb_typeof(options -> 'after_jobs')
        WHEN 'array' THEN options -> 'after_jobs' ELSE '[]'::jsonb END) a(item)
    WHERE a.item ~ '^[0-9]{1,18}$'
$function$;

CREATE OR REPLACE FUNCTION pgsched.after_prefix(prefix text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN length(prefix) = 0 THEN NULL
        WHEN c.code < 127 OR pg_char_to_encoding('UTF8') = pg_char_to_encoding(getdatabaseencoding()) AND c.code < 1114111
        THEN left(prefix, -1) || chr(CASE c.code WHEN 55295 THEN 57344 ELSE c.code + 1 END) END
    FROM (SELECT CASE WHEN octet_length(right(prefix, 1)) = 1 OR getdatabaseencoding() = 'UTF8' THEN ascii(right(prefix, 1)) ELSE 1114111 END) AS c(code)
$function$;

CREATE OR REPLACE FUNCTION pgsched.alert_defaults_refuse()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    problem text := coalesce(
        pgsched.bad_targets('alert_to', NEW.alert_to),
        CASE WHEN NEW.dead_runs IS NOT NULL THEN pgsched.out_of_range('dead_runs', NEW.dead_runs, 1, 10000) END,
        CASE WHEN NEW.dead_runs_within IS NULL THEN 'dead_runs_within: must not be null'
             WHEN NEW.dead_runs_within NOT BETWEEN '1 second' AND '31 days' THEN
                 format('dead_runs_within: %s is out of range 1 second-31 days', NEW.dead_runs_within) END);
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, TG_TABLE_NAME);
    END IF;
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.alerts_notify()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET "IntervalStyle" TO 'postgres'
 SET "TimeZone" TO 'UTC'
 SET extra_float_digits TO '1'
AS $function$
BEGIN
    PERFORM pgsched.notify('pgsched_alerts', jsonb_build_object('id', NEW.id,
        'event', CASE WHEN NEW.closed_at IS NULL THEN 'opened' ELSE 'closed' END)::text);
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.are_plain(task text, queue text, priority smallint, max_attempts integer, run_timeout interval)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    LOCK TABLE pgsched.runs IN ROW EXCLUSIVE MODE;
    RETURN pgsched.is_plain(task, '{}', queue, priority, max_attempts, run_timeout) IS TRUE;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.args_error(kind text, args jsonb)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN args IS NULL THEN 'args: must not be null'
        WHEN jsonb_typeof(args) NOT IN ('object', 'array') THEN
            format('args: must be a JSON object or array, not a %s', jsonb_typeof(args))
        WHEN kind IN ('shell', 'http') AND jsonb_typeof(args) = 'array' AND args <> '[]' THEN
            format('args: a %s job takes a JSON object', kind)
        WHEN pg_column_size(args || CASE jsonb_typeof(args) WHEN 'array' THEN '[]' ELSE '{}' END::jsonb) > 1048576 THEN
            format('args: %s bytes, at most 1048576 are allowed',
                pg_column_size(args || CASE jsonb_typeof(args) WHEN 'array' THEN '[]' ELSE '{}' END::jsonb))
        WHEN jsonb_path_exists(args, 'strict $.**{201}') THEN 'args: nested more than 200 deep'
        WHEN kind = 'http' THEN pgsched.http_args_error(args)
        WHEN kind = 'sql' THEN pgsched.sql_args_error(args)
        WHEN kind IN ('command', 'shell') THEN pgsched.command_args_error(kind, args)
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.arguments_key(task text, args jsonb, names text[], defaults jsonb DEFAULT NULL::jsonb)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    problem text := CASE WHEN cardinality(names) = 0 OR array_position(names, NULL) IS NOT NULL
            THEN 'unique_by: expected the names of arguments, or {*} for all'
        WHEN names IS NOT NULL THEN pgsched.args_error('task', args) END;
    chosen jsonb;
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    ELSIF names IS NULL THEN
        RETURN NULL;
    ELSIF names = '{*}' THEN
        chosen := CASE jsonb_typeof(args) WHEN 'object' THEN coalesce(defaults, '{}') || args ELSE args END;
    ELSE
        SELECT jsonb_object_agg(n.name, pgsched.key_argument('unique_by', n.name, args, defaults)) INTO chosen
        FROM unnest(names) n(name);
    END IF;
    RETURN btrim(regexp_replace(left(task, 200), E'[\\x01-\\x1f\\x7f]', '?', 'g')) || ' '
        || encode(sha256(convert_to(task || ' ' || pgsched.canonical_json(chosen)::text, 'UTF8')), 'hex');
END $function$;

CREATE OR REPLACE FUNCTION pgsched.assert_claim(run_id bigint, claim_token uuid)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM FROM pgsched.runs r WHERE r.id = run_id AND r.token = claim_token AND r.state = 'running' FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('claim of run %s is lost: another attempt owns it or it has ended', run_id);
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.assert_fleet(expected uuid)
 RETURNS uuid
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    found uuid := (SELECT i.fleet FROM pgsched.identity i);
BEGIN
    IF found <> expected THEN
        RAISE EXCEPTION USING ERRCODE = 'PS409', MESSAGE =
            format('this database is of the fleet %s, and the process of %s', found, expected);
    END IF;
    RETURN found;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.assert_lock(name text, fence bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    -- before the row is locked: whoever holds a grant's row keeps its lock from others
    PERFORM pgsched.refuse_others(format('lock "%s"', left(p.lock, 200)), s.owner)
    FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
    WHERE p.lock = assert_lock.name AND p.fence = assert_lock.fence AND s.owner <> pgsched.caller();
    PERFORM FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
    WHERE p.lock = assert_lock.name AND p.fence = assert_lock.fence AND p.left_at IS NULL
      AND s.ended_at IS NULL AND s.lease_until > clock_timestamp()
      AND (s.owner = pgsched.caller() OR pgsched.may_change(s.owner))  -- it may have been granted since the check above
    FOR KEY SHARE OF p;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'PS410', MESSAGE = format('lock "%s" is not held with fence %s: its lease has ended, or'
            ' it was given back or taken away; undo what you do under it', left(name, 200), coalesce(fence::text, 'null'));
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.audit_alerts()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF current_setting('pgsched.watches', true) = 'on'
        AND has_table_privilege(pgsched.caller(), 'pgsched.alert_deliveries', 'INSERT') THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.note(CASE WHEN TG_OP = 'INSERT' THEN 'opened'
            WHEN NEW.closed_at IS NOT NULL AND OLD.closed_at IS NULL THEN 'closed' ELSE 'changed' END,
        'alert', NEW.id::text, pgsched.audited(jsonb_build_object('kind', NEW.kind, 'job', NEW.job, 'job_id', NEW.job_id,
            'details', left(NEW.details, 1000), 'recovery', left(NEW.recovery, 1000))));
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.audit_backfills()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET "IntervalStyle" TO 'postgres'
 SET "TimeZone" TO 'UTC'
 SET extra_float_digits TO '1'
AS $function$
BEGIN
    PERFORM pgsched.note('created', 'backfill', NEW.id::text, jsonb_build_object('job', NEW.job, 'from', NEW.from_at,
        'to', NEW.to_at, 'mode', NEW.mode, 'max_active', NEW.max_active));
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.audit_calendar_times()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM pgsched.note('changed', 'calendar', m.calendar, jsonb_build_object(
        CASE TG_OP WHEN 'INSERT' THEN 'added' WHEN 'DELETE' THEN 'removed' ELSE 'changed' END, m.n, 'times', m.some))
    FROM (
        SELECT o.calendar, max(o.n) AS n, jsonb_agg(o.words ORDER BY o.place) FILTER (WHERE o.place <= 20) AS some FROM (
            SELECT t.calendar, pgsched.describe_times(t) AS words, count(*) OVER (PARTITION BY t.calendar) AS n,
                row_number() OVER (PARTITION BY t.calendar ORDER BY t.id) AS place FROM moved t) o
        GROUP BY o.calendar) m
    -- not where the calendar itself was deleted, which is noted as such
    WHERE EXISTS (SELECT FROM pgsched.calendars c WHERE c.name = m.calendar);
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.audit_calendars()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    was jsonb := CASE WHEN TG_OP <> 'INSERT' THEN jsonb_build_array(OLD.from_date, OLD.until_date, OLD.reason) END;
    is_now jsonb := CASE WHEN TG_OP <> 'DELETE' THEN jsonb_build_array(NEW.from_date, NEW.until_date, NEW.reason) END;
BEGIN
    IF was IS DISTINCT FROM is_now THEN
        PERFORM pgsched.note('changed', 'job', j.name, jsonb_build_object('excluded', jsonb_build_array(was, is_now)))
        FROM pgsched.jobs j WHERE j.id = CASE WHEN TG_OP = 'DELETE' THEN OLD.job_id ELSE NEW.job_id END;
    END IF;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.audit_drains()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM pgsched.note(CASE WHEN NEW.drain_asked_at IS NOT NULL AND OLD.drain_asked_at IS NULL THEN 'drained' ELSE 'changed' END,
        'worker', NEW.name, jsonb_build_object('by', NEW.drain_asked_by));
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.audit_file_entries()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM pgsched.note(TG_ARGV[0], 'file', c.owner, jsonb_build_object('objects', c.objects, 'some', to_jsonb(c.some)))
    FROM (SELECT e.owner, count(*) AS objects, (array_agg(e.what || ' ' || e.name ORDER BY e.what, e.name))[:20] AS some
          FROM changed e WHERE e.what <> 'done' GROUP BY e.owner) c;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.audit_jobs_added()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET "IntervalStyle" TO 'postgres'
 SET "TimeZone" TO 'UTC'
 SET extra_float_digits TO '1'
AS $function$
BEGIN
    PERFORM pgsched.note('created', 'job', a.name, pgsched.audited(to_jsonb(a))) FROM added a;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.audit_jobs_changed()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET "IntervalStyle" TO 'postgres'
 SET "TimeZone" TO 'UTC'
 SET extra_float_digits TO '1'
AS $function$
DECLARE
    change jsonb := pgsched.audited_change(to_jsonb(OLD), to_jsonb(NEW));
BEGIN
    IF change IS NOT NULL THEN
        PERFORM pgsched.note(CASE WHEN NEW.paused AND NOT OLD.paused THEN 'paused'
                                  WHEN OLD.paused AND NOT NEW.paused THEN 'resumed' ELSE 'changed' END,
                             'job', NEW.name, change);
    END IF;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.audit_jobs_gone()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET "IntervalStyle" TO 'postgres'
 SET "TimeZone" TO 'UTC'
 SET extra_float_digits TO '1'
AS $function$
BEGIN
    PERFORM pgsched.note('deleted', 'job', g.name, pgsched.audited(to_jsonb(g))) FROM gone g
    WHERE NOT (g.delete_after_run AND g.next_run_at IS NULL);
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.audit_keys()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET "IntervalStyle" TO 'postgres'
 SET "TimeZone" TO 'UTC'
 SET extra_float_digits TO '1'
AS $function$
BEGIN
    PERFORM pgsched.note('deleted', 'key', left(OLD.key, 500),
        jsonb_build_object('scope', left(OLD.scope, 500), 'run', OLD.run_id, 'expires_at', OLD.expires_at));
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.audit_setting()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET "IntervalStyle" TO 'postgres'
 SET "TimeZone" TO 'UTC'
 SET extra_float_digits TO '1'
AS $function$
DECLARE
    was jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
    is_now jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
    r jsonb := coalesce(is_now, was);
    change jsonb := CASE TG_OP WHEN 'UPDATE' THEN pgsched.audited_change(was, is_now) ELSE pgsched.audited(r) END;
    pause boolean := TG_ARGV[0] = 'pause';
BEGIN
    -- what limit: the database's own, while a queue's first limit is applied
    IF change IS NOT NULL AND r ->> 'what' IS DISTINCT FROM 'limit'
        AND NOT (pause AND TG_OP = 'DELETE' AND coalesce((r ->> 'resume_at')::timestamptz <= clock_timestamp(), false))
    THEN
        PERFORM pgsched.note(CASE TG_OP WHEN 'INSERT' THEN CASE WHEN pause THEN 'paused' ELSE 'created' END
                                        WHEN 'DELETE' THEN CASE WHEN pause THEN 'resumed' ELSE 'deleted' END
                                        ELSE 'changed' END, TG_ARGV[0],
            CASE WHEN pause THEN btrim(format('%s %s', r ->> 'what', r ->> 'name')) ELSE r ->> 'name' END, change);
    END IF;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.audit_tags()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM pgsched.note('tagged', 'run', NEW.id::text, pgsched.audited_change(
        jsonb_build_object('tags', OLD.tags), jsonb_build_object('tags', NEW.tags)));
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.audit_tasks()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF (SELECT count(*) FROM pgsched.tasks t
        WHERE t.task = OLD.task AND t.app = OLD.app AND t.first_seen_at > OLD.first_seen_at) < pgsched.releases_kept() THEN
        PERFORM pgsched.note('deleted', 'task', OLD.task, jsonb_build_object('app', OLD.app, 'release', OLD.release));
    END IF;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.audited(r jsonb)
 RETURNS jsonb
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT coalesce(jsonb_object_agg(e.key, CASE WHEN octet_length(e.value::text) <= 2000 THEN e.value
        ELSE to_jsonb(format('%s... (%s bytes, md5 %s)', left(e.value::text, 500), octet_length(e.value::text),
                             md5(e.value::text))) END), '{}')
    FROM jsonb_each(r - '{id,created_at,updated_at,anchor_at,decided_until,next_run_at,run_count,error,error_at,paused_at,applied_at,limited,shifts,version,replan}'::text[]) e
    WHERE e.value <> 'null'
$function$;

CREATE OR REPLACE FUNCTION pgsched.audited_change(was jsonb, is_now jsonb)
 RETURNS jsonb
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT jsonb_object_agg(key, jsonb_build_array(w.value, n.value))
    FROM jsonb_each(pgsched.audited(was)) w FULL JOIN jsonb_each(pgsched.audited(is_now)) n USING (key)
    WHERE w.value IS DISTINCT FROM n.value
$function$;

CREATE OR REPLACE FUNCTION pgsched.await_runs(run_ids bigint[])
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
DECLARE
    mine bigint[];
    noted bigint;
BEGIN
    IF cardinality(run_ids) > 10000 THEN
        PERFORM pgsched.raise_bad_value(format('run_ids: %s runs, at most 10000 are allowed', cardinality(run_ids)), 'runs');
    END IF;
    mine := ARRAY(
        SELECT r.id FROM pgsched.runs r
        WHERE r.id = ANY (run_ids) AND r.phase < 3 /* open */ AND r.awaited IS NOT TRUE
          AND (r.owner = pgsched.caller() OR r.owner IS NULL AND (SELECT pgsched.may_change(NULL)) OR r.owner IN (
              SELECT o.owner FROM (SELECT DISTINCT d.owner FROM pgsched.runs d WHERE d.id = ANY (run_ids)) o
              WHERE pgsched.may_change(o.owner))));
    IF cardinality(mine) = 0 THEN
        RETURN 0;
    END IF;
    WITH free AS MATERIALIZED (
        SELECT r.id FROM pgsched.runs r WHERE r.id = ANY (mine) AND r.phase < 3 /* open */ FOR NO KEY UPDATE SKIP LOCKED
    ), marked AS (
        UPDATE pgsched.runs r SET awaited = true FROM free WHERE r.id = free.id RETURNING r.queue, r.state
    )
    -- a claim that came meanwhile has passed over these rows: it is told to look again
    SELECT count(pgsched.notify('pgsched_runs', pgsched.queue_mark(q.queue))) INTO noted
    FROM (SELECT DISTINCT m.queue FROM marked m WHERE m.state = 'queued') q;
    RETURN (SELECT count(*) FROM pgsched.runs r
            WHERE r.id = ANY (mine) AND r.phase < 3 /* open */ AND r.awaited IS NOT TRUE);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.back_in_line(state text, queue text, concurrency_key text)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
    SELECT CASE WHEN $1 = 'queued' AND pgsched.is_limited($2, $3) THEN 'waiting' ELSE $1 END
$function$;

CREATE OR REPLACE FUNCTION pgsched.backfill(job text, from_at timestamp with time zone, to_at timestamp with time zone, mode text DEFAULT 'missing'::text, max_active integer DEFAULT 1, reverse boolean DEFAULT false, priority integer DEFAULT 9)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    j pgsched.jobs;
    decided timestamptz;
    problem text := coalesce(
        CASE WHEN backfill.from_at IS NULL THEN 'from_at: must not be null'
             WHEN backfill.to_at IS NULL THEN 'to_at: must not be null' END,
        pgsched.bad_instant('from_at', backfill.from_at),
        pgsched.bad_instant('to_at', backfill.to_at),
        CASE WHEN backfill.from_at >= backfill.to_at THEN
            format('to_at: %s is not later than %s', backfill.to_at, backfill.from_at) END,
        CASE WHEN backfill.to_at - backfill.from_at > interval '36525 days' THEN
            'to_at: the range is longer than 100 years: ask for a shorter one' END,
        pgsched.not_one_of('mode', backfill.mode, ARRAY['missing', 'failed', 'unsuccessful', 'all']),
        pgsched.out_of_range('max_active', backfill.max_active, 1, 1000),
        pgsched.out_of_range('priority', backfill.priority, 0, 9),
        CASE WHEN backfill.reverse IS NULL THEN 'reverse: must not be null' END);
    bound_by name := CASE WHEN backfill.priority <> 9 THEN pgsched.bounding_policy() END;
    new_id bigint;
BEGIN
    SELECT * INTO j FROM pgsched.jobs WHERE name = backfill.job;
    IF problem IS NULL AND j.id IS NULL THEN
        PERFORM pgsched.refuse_unknown_job(backfill.job);
    END IF;
    PERFORM pgsched.refuse_others(format('job "%s"', j.name), j.owner) WHERE j.id IS NOT NULL;
    decided := least(clock_timestamp(), j.decided_until + interval '1 microsecond');
    problem := coalesce(problem,
        CASE WHEN coalesce(ltrim(j.schedule) ILIKE '@after%', true) THEN format(
                 'job: %s has no schedule whose past slots are known: only cron and @every have them', j.name)
             WHEN backfill.from_at >= decided THEN format(
                 'from_at: job %s is decided until %s: slots after that are the schedule''s to decide', j.name, decided)
        END);
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'backfills');
    END IF;
    IF bound_by IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = format('permission denied: the policy "%s"'
            ' bounds the runs of role "%s": leave out the priority of the backfill, which is 9 then', bound_by,
            pgsched.caller());
    END IF;
    INSERT INTO pgsched.backfills (job_id, job, schedule, timezone, anchor_at, from_at, to_at, mode, max_active,
        reverse, priority)
    VALUES (j.id, j.name, j.schedule, j.timezone, j.anchor_at, backfill.from_at, least(backfill.to_at, decided),
        backfill.mode, backfill.max_active, backfill.reverse, backfill.priority::smallint)
    RETURNING id INTO new_id;
    PERFORM pgsched.notify('pgsched_leader', 'backfills');
    RETURN new_id;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.backfill_in_order(jobs text[], from_at timestamp with time zone, to_at timestamp with time zone, mode text DEFAULT 'unsuccessful'::text, max_active integer DEFAULT 1, reverse boolean DEFAULT false, priority integer DEFAULT 9)
 RETURNS bigint[]
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    one_job text;
    new_id bigint;
    made bigint[] := '{}';
BEGIN
    IF array_ndims(backfill_in_order.jobs) > 1 OR coalesce(cardinality(backfill_in_order.jobs), 0) NOT BETWEEN 1 AND 200
       OR cardinality(backfill_in_order.jobs) <> (SELECT count(DISTINCT j.name) FROM unnest(backfill_in_order.jobs) j(name)) THEN
        PERFORM pgsched.raise_bad_value('jobs: expected the names of 1-200 jobs, each one once', 'backfills');
    END IF;
    FOREACH one_job IN ARRAY backfill_in_order.jobs LOOP
        new_id := pgsched.backfill(one_job, backfill_in_order.from_at, backfill_in_order.to_at, backfill_in_order.mode,
            backfill_in_order.max_active, backfill_in_order.reverse, backfill_in_order.priority);
        UPDATE pgsched.backfills b SET together = coalesce(made[1], new_id), after_backfill = made[cardinality(made)]
        WHERE b.id = new_id AND cardinality(backfill_in_order.jobs) > 1;
        made := made || new_id;
    END LOOP;
    RETURN made;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.backfills_refuse_instants()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM pgsched.raise_bad_value(coalesce(pgsched.bad_instant('from_at', NEW.from_at),
        pgsched.bad_instant('to_at', NEW.to_at),
        format('anchor_at: %s is not an instant between 1900 and 9000', NEW.anchor_at)), 'backfills');
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.bad_codes(field text, codes integer[])
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN array_ndims(codes) > 1 THEN format('%s: must be a plain list', field)
        WHEN codes = '{}' THEN format('%s: must name at least one exit code', field)
        WHEN array_position(codes, NULL) IS NOT NULL THEN format('%s: must not hold null', field)
        WHEN NOT codes <@ ARRAY(SELECT generate_series(0, 255)) THEN
            format('%s: %s is out of range 0-255', field,
                   (SELECT code FROM unnest(codes) AS c(code) WHERE code NOT BETWEEN 0 AND 255 LIMIT 1))
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.bad_instant(field text, value timestamp with time zone)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN NOT isfinite(value) OR value NOT BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z'
           THEN format('%s: %s is not an instant between 1970 and 9000', field, value) END
$function$;

CREATE OR REPLACE FUNCTION pgsched.bad_interval(field text, value interval, at_least interval)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN value IS NULL THEN NULL
        WHEN value < at_least THEN format('%s: %s is less than %s', field, value, at_least)
        WHEN value > interval '10 years' THEN format('%s: %s is more than 10 years', field, value)
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.bad_length(field text, value text, longest integer)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN length(value) > longest THEN
        format('%s: %s characters, at most %s are allowed', field, length(value), longest) END
$function$;

CREATE OR REPLACE FUNCTION pgsched.bad_owner(owner name)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN owner IS NULL THEN 'owner: must not be null'
        WHEN NOT EXISTS (SELECT FROM pg_roles WHERE rolname = owner) THEN format('owner: there is no role "%s"', owner)
        WHEN NOT pg_has_role(pgsched.caller(), owner, 'MEMBER') THEN
            format('owner: role "%s" may not act for role "%s"', pgsched.caller(), owner)
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.bad_period(field text, value interval)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN value IS NULL THEN format('%s: must not be null', field)
           ELSE pgsched.bad_interval(field, value, '0') END
$function$;

CREATE OR REPLACE FUNCTION pgsched.bad_tags(tags text[])
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN array_ndims(tags) > 1 THEN 'tags: must be a plain list'
        WHEN cardinality(tags) > 100 THEN format('tags: %s tags, at most 100 are allowed', cardinality(tags))
        WHEN array_position(tags, NULL) IS NOT NULL THEN 'tags: must not hold null'
        WHEN cardinality(tags) > 0 THEN (
            SELECT problem FROM unnest(tags) t(tag), pgsched.bad_text('tags', tag, 200) problem
            WHERE problem IS NOT NULL LIMIT 1)
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.bad_targets(field text, names text[])
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN array_ndims(names) > 1 THEN format('%s: must be a plain list', field)
        WHEN cardinality(names) > 20 THEN format('%s: %s names, at most 20 are allowed', field, cardinality(names))
        ELSE (SELECT format('%s: "%s" is no name of 1-63 characters a-z, 0-9, - and _', field, left(n.name, 60))
              FROM unnest(names) n(name) WHERE (n.name ~ '^[a-z0-9_-]{1,63}$') IS NOT TRUE LIMIT 1)
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.bad_text(field text, value text, longest integer)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET standard_conforming_strings TO 'on'
AS $function$
    SELECT CASE
        WHEN value = '' OR value IS NULL THEN format('%s: must not be empty', field)
        WHEN length(value) > longest THEN
            format('%s: %s characters, at most %s are allowed', field, length(value), longest)
        WHEN value ~ '[\x01-\x1f\x7f]' THEN format('%s: must not contain control characters', field)
        WHEN value <> btrim(value) THEN format('%s: must not begin or end with a space', field)
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.barrier_enter(name text, token uuid, size integer, session uuid, note jsonb DEFAULT 'null'::jsonb, OUT round bigint, OUT open boolean, OUT members bigint)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    barrier text := pgsched.barrier_key(name);
    member text := barrier || '/' || replace(token::text, '-', '');
    root text := pgsched.store_root(barrier);
    state jsonb;
    version bigint;
    of_session bigint;
    alive bigint;
BEGIN
    IF size IS NULL OR size NOT BETWEEN 1 AND 10000 THEN
        PERFORM pgsched.raise_bad_value(pgsched.out_of_range('size', size, 1, 10000), 'store');
    ELSIF token IS NULL OR session IS NULL THEN
        PERFORM pgsched.raise_bad_value('token: neither it nor the session must be null', 'store');
    END IF;
    PERFORM pgsched.check_value(note);
    state := pgsched.barrier_lock(barrier);
    open := coalesce((state -> 'open')::boolean, false);
    round := (state -> 'round')::bigint;
    members := pgsched.barrier_members(barrier);
    SELECT k.session INTO of_session FROM pgsched.store k WHERE k.key = member;
    IF FOUND THEN
        alive := pgsched.living_session(session);
        IF of_session IS DISTINCT FROM alive THEN  -- the one with which it has entered is lost
            PERFORM pgsched.store_write(root, member, note, alive);
        END IF;
    ELSIF open THEN
        open := false;
        round := NULL;
    ELSIF (state -> 'size')::integer <> size THEN
        PERFORM pgsched.raise_bad_value(format('size: others wait at "%s" for %s members, not %s', name, state -> 'size', size), 'store');
    ELSE
        version := pgsched.store_write(root, member, note, pgsched.living_session(session));
        members := members + 1;
        open := members >= size;
        round := coalesce(round, version);
        IF open OR state IS NULL THEN
            PERFORM pgsched.store_write(root, barrier, jsonb_build_object('size', size, 'round', round, 'open', open), NULL);
        END IF;
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.barrier_key(name text)
 RETURNS text
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF name IS NULL OR length(name) NOT BETWEEN 1 AND 200 THEN
        PERFORM pgsched.raise_bad_value(format('name: expected 1 to 200 characters, got %s', coalesce(length(name)::text, 'null')), 'store');
    END IF;
    PERFORM pgsched.check_key(name || '/barrier');
    RETURN name || '/barrier';
END $function$;

CREATE OR REPLACE FUNCTION pgsched.barrier_leave(name text, token uuid, round bigint)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    barrier text := pgsched.barrier_key(name);
    state jsonb;
BEGIN
    PERFORM pgsched.kv_delete(barrier || '/' || replace(token::text, '-', ''));
    SELECT k.value INTO state FROM pgsched.store k WHERE k.key = barrier;
    RETURN NOT FOUND OR NOT pgsched.is_barrier(state) OR (state -> 'round')::bigint <> round OR NOT (state -> 'open')::boolean;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.barrier_lock(key text)
 RETURNS jsonb
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    state jsonb;
BEGIN
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);
    SELECT k.value INTO state FROM pgsched.store k WHERE k.key = barrier_lock.key;
    IF FOUND AND NOT pgsched.is_barrier(state) THEN
        PERFORM pgsched.raise_bad_value(format('name: the value of key "%s" is not that of a barrier: delete the key', key), 'store');
    END IF;
    RETURN state;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.barrier_members(key text)
 RETURNS bigint
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT count(*) FROM pgsched.store k
    WHERE k.key > (barrier_members.key || '/') COLLATE "C" AND k.key < (barrier_members.key || '0') COLLATE "C" AND k.session IS NOT NULL
      AND pgsched.session_lives(k.session)
$function$;

CREATE OR REPLACE FUNCTION pgsched.barrier_withdraw(name text, token uuid)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    barrier text := pgsched.barrier_key(name);
    member text := barrier || '/' || replace(token::text, '-', '');
BEGIN
    IF NOT EXISTS (SELECT FROM pgsched.store k WHERE k.key = member) THEN
        RETURN true;
    ELSIF (pgsched.barrier_lock(barrier) -> 'open')::boolean THEN
        RETURN NOT EXISTS (SELECT FROM pgsched.store k WHERE k.key = member);
    END IF;
    PERFORM pgsched.kv_delete(member);
    RETURN true;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.barriers_settle(root text, gone text[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    one text;
BEGIN
    FOR one IN SELECT k.key FROM pgsched.store k
        WHERE k.key IN (SELECT left(g.key, -33) FROM unnest(gone) AS g(key) WHERE g.key ~ '/barrier/[0-9a-f]{32}$')
          AND pgsched.is_barrier(k.value)
        ORDER BY k.key
    LOOP
        IF pgsched.barrier_members(one) = 0 THEN
            PERFORM pgsched.store_write(root, one, NULL, NULL);
        END IF;
    END LOOP;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.bin_of(seconds double precision)
 RETURNS integer
 LANGUAGE sql
 IMMUTABLE
AS $function$
    SELECT pg_catalog.width_bucket(seconds, '{0.001,0.002,0.004,0.008,0.016,0.032,0.064,0.128,0.256,0.512,1.024,2.048,4.096,8.192,16.384,32.768,65.536,131.072,262.144,524.288,1048.576,2097.152,4194.304,8388.608,16777.216}'::double precision[]) + 1
$function$;

CREATE OR REPLACE FUNCTION pgsched.bind_key(scope text, key text, run_id bigint, lasts interval DEFAULT NULL::interval)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF bind_key.run_id IS NULL THEN
        DELETE FROM pgsched.kept_keys k
        WHERE k.scope = bind_key.scope AND k.key = bind_key.key AND k.run_id IS NULL;
    ELSE
        UPDATE pgsched.kept_keys k SET run_id = bind_key.run_id, owner = DEFAULT, expires_at = coalesce(
            (SELECT r.created_at + bind_key.lasts FROM pgsched.runs r WHERE r.id = bind_key.run_id), k.expires_at)
        WHERE k.scope = bind_key.scope AND k.key = bind_key.key AND k.run_id IS NULL;
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.bounding_policy()
 RETURNS name
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT p.polname FROM pg_policy p
    WHERE p.polrelid = 'pgsched.runs'::regclass AND NOT p.polpermissive AND p.polcmd IN ('a', 'w', '*')
      AND NOT starts_with(p.polname::text, 'pgsched_') AND NOT pgsched.may_change(NULL)
      AND EXISTS (SELECT FROM unnest(p.polroles) AS o(role)
                  WHERE CASE o.role WHEN 0 THEN true ELSE pg_has_role(pgsched.caller(), o.role, 'USAGE') END)
    ORDER BY p.polname LIMIT 1
$function$;

CREATE OR REPLACE FUNCTION pgsched.calendar_error(c pgsched.job_calendars)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN c.from_date IS NULL THEN 'from_date: must not be null'
        WHEN c.from_date NOT BETWEEN '1970-01-01' AND '8999-12-31' THEN
            format('from_date: %s is not a date between 1970 and 9000', c.from_date)
        WHEN c.until_date NOT BETWEEN '1970-01-01' AND '8999-12-31' THEN
            format('until_date: %s is not a date between 1970 and 9000', c.until_date)
        WHEN c.until_date < c.from_date THEN
            format('until_date: %s is earlier than from_date, %s', c.until_date, c.from_date)
        WHEN c.reason IS NOT NULL THEN pgsched.bad_text('reason', c.reason, 200) END
$function$;

CREATE OR REPLACE FUNCTION pgsched.calendar_time_error(t pgsched.calendar_times)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN t.calendar IS NULL THEN 'calendar: must not be null'
        WHEN t.from_date IS NULL AND t.until_date IS NOT NULL THEN 'from_date: must not be null beside until_date'
        WHEN t.from_date NOT BETWEEN '1970-01-01' AND '8999-12-31' THEN
            format('from_date: %s is not a date between 1970 and 9000', t.from_date)
        WHEN t.until_date NOT BETWEEN '1970-01-01' AND '8999-12-31' THEN
            format('until_date: %s is not a date between 1970 and 9000', t.until_date)
        WHEN t.until_date < t.from_date THEN
            format('until_date: %s is earlier than from_date, %s', t.until_date, t.from_date)
        WHEN array_ndims(t.weekdays) > 1 THEN 'weekdays: must be a plain list'
        WHEN t.weekdays = '{}' OR NOT t.weekdays <@ '{0,1,2,3,4,5,6}' OR array_position(t.weekdays, NULL) IS NOT NULL THEN
            'weekdays: expected numbers from 0 (Sunday) to 6'
        WHEN cardinality(t.weekdays) > 7 THEN 'weekdays: at most 7'
        WHEN (t.from_time IS NULL) <> (t.until_time IS NULL) THEN 'from_time: from_time and until_time belong together'
        WHEN t.until_time <= t.from_time THEN
            format('until_time: %s is not later than from_time, %s', t.until_time, t.from_time)
        WHEN t.from_date IS NULL AND t.weekdays IS NULL AND t.from_time IS NULL THEN
            'from_date: expected dates, weekdays or times of the day'
        WHEN t.reason IS NOT NULL THEN pgsched.bad_text('reason', t.reason, 200) END
$function$;

CREATE OR REPLACE FUNCTION pgsched.calendar_times_before()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    problem text;
BEGIN
    IF NEW.from_date IS NOT NULL THEN
        NEW.until_date := coalesce(NEW.until_date, NEW.from_date);
    END IF;
    problem := coalesce(pgsched.calendar_time_error(NEW), CASE
        WHEN TG_OP = 'UPDATE' AND NEW.calendar IS DISTINCT FROM OLD.calendar
            AND EXISTS (SELECT FROM pgsched.calendars c WHERE c.name = OLD.calendar) THEN
            'calendar: a time stays in its calendar' END);
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'calendar_times');
    END IF;
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.calendar_times_changed()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    UPDATE pgsched.calendars c SET version = gen_random_uuid(), replan = true
    WHERE c.name IN (SELECT m.calendar FROM moved m);
    PERFORM pgsched.notify('pgsched_leader', 'calendars');
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.calendar_times_most()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    most constant integer := 5000;
    most_repeated constant integer := 100;
BEGIN
    IF EXISTS (SELECT FROM (SELECT DISTINCT calendar FROM added) a WHERE (SELECT count(*) FROM (
            SELECT FROM pgsched.calendar_times t WHERE t.calendar = a.calendar LIMIT most + 1) found) > most) THEN
        PERFORM pgsched.raise_bad_value(format('calendar: a calendar has at most %s times', most), 'calendar_times');
    ELSIF EXISTS (SELECT FROM (SELECT DISTINCT calendar FROM added) a WHERE (SELECT count(*) FROM (
            SELECT FROM pgsched.calendar_times t WHERE t.calendar = a.calendar
                AND (t.weekdays IS NOT NULL OR t.from_time IS NOT NULL)
                AND coalesce(t.until_date - t.from_date > 31, true) LIMIT most_repeated + 1) found) > most_repeated) THEN
        PERFORM pgsched.raise_bad_value(format('calendar: at most %s times of a calendar may repeat: have weekdays or hours,'
            ' and no dates, or dates more than 31 days apart', most_repeated), 'calendar_times');
    ELSIF EXISTS (SELECT FROM (SELECT DISTINCT calendar FROM added WHERE from_time IS NOT NULL) a WHERE most_repeated < (
            SELECT max(o.n) FROM (
                SELECT sum(e.step) OVER (ORDER BY e.day, e.step) AS n
                FROM pgsched.calendar_times t CROSS JOIN LATERAL (VALUES (t.from_date, 1), (t.until_date + 1, -1)) e(day, step)
                WHERE t.calendar = a.calendar AND t.from_time IS NOT NULL AND t.until_date - t.from_date <= 31) o)) THEN
        PERFORM pgsched.raise_bad_value(format('calendar: at most %s times with hours may fall on one date',
            most_repeated), 'calendar_times');
    END IF;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.calendars_before()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    judged pgsched.calendars := NEW;
    problem text;
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.created_at := clock_timestamp();
        NEW.version := gen_random_uuid();
        NEW.replan := false;
    ELSE
        NEW.created_at := OLD.created_at;
        IF NEW.owner = OLD.owner THEN
            judged.owner := pgsched.caller();  -- an owner that stays is not judged again
        END IF;
    END IF;
    problem := pgsched.shared_calendar_error(judged);
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'calendars');
    END IF;
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.caller()
 RETURNS name
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN current_user <> (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'pgsched.jobs'::regclass)
            THEN current_user
        WHEN current_setting('role') = 'none' THEN session_user
        ELSE current_setting('role')::name END
$function$;

CREATE OR REPLACE FUNCTION pgsched.cancel(run_id bigint, why text DEFAULT NULL::text)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    r pgsched.runs;
    author text := format('cancelled by %s%s', session_user, coalesce(': ' || why, ''));
BEGIN
    IF length(why) > 10000 THEN  -- it becomes the run's reason, beside its error (runs_texts_size)
        PERFORM pgsched.raise_bad_value(pgsched.bad_length('why', why, 10000), 'runs');
    END IF;
    PERFORM pgsched.refuse_others(format('run %s', o.id), o.owner) FROM pgsched.runs o WHERE o.id = run_id;
    SELECT * INTO r FROM pgsched.runs WHERE id = run_id FOR NO KEY UPDATE;
    IF r.id IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.refuse_others(format('run %s', r.id), r.owner);
    IF r.phase >= 3 /* ended */ THEN
        RETURN r.state;
    END IF;
    PERFORM pgsched.note('cancelled', 'run', r.id::text,
        jsonb_build_object('state', r.state, 'task', left(r.task, 200), 'why', left(cancel.why, 1000)));
    IF r.state = 'running' THEN
        UPDATE pgsched.runs SET cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),
            cancel_reason = author WHERE id = run_id;
        PERFORM pgsched.notify('pgsched_cancel', '');
        RETURN 'requested';
    END IF;
    UPDATE pgsched.runs SET state = 'cancelled', finished_at = clock_timestamp(), reason = author WHERE id = run_id;
    PERFORM pgsched.tell_leader();
    RETURN 'cancelled';
END $function$;

CREATE OR REPLACE FUNCTION pgsched.cancel_backfill(backfill_id bigint, why text DEFAULT NULL::text)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    b pgsched.backfills;
    whole bigint;
    done text;
    author text := format('%s%s', session_user, coalesce(': ' || cancel_backfill.why, ''));
BEGIN
    IF length(why) > 9000 THEN  -- with some words more, it is the reason of each run (cancel)
        PERFORM pgsched.raise_bad_value(pgsched.bad_length('why', why, 9000), 'backfills');
    END IF;
    SELECT o.together INTO whole FROM pgsched.backfills o WHERE o.id = cancel_backfill.backfill_id;
    PERFORM pgsched.refuse_others(format('backfill %s', o.id), (SELECT j.owner FROM pgsched.jobs j WHERE j.id = o.job_id))
    FROM pgsched.backfills o WHERE o.id = cancel_backfill.backfill_id OR o.together = whole;  -- before any is locked (45_control.sql)
    -- the leader holds such a row while it starts runs: none can be born after the loop below has looked
    FOR b IN SELECT * FROM pgsched.backfills o WHERE o.id = cancel_backfill.backfill_id OR o.together = whole
             ORDER BY o.id FOR UPDATE LOOP
        PERFORM pgsched.refuse_others(format('backfill %s', b.id), (SELECT j.owner FROM pgsched.jobs j WHERE j.id = b.job_id));
        IF b.finished_at IS NOT NULL THEN
            done := coalesce(done, CASE WHEN b.cancelled_at IS NULL THEN 'finished' ELSE 'cancelled' END);
            CONTINUE;
        END IF;
        done := 'cancelled';
        PERFORM pgsched.note('cancelled', 'backfill', b.id::text,
            jsonb_build_object('job', b.job, 'why', left(cancel_backfill.why, 1000)));
        UPDATE pgsched.backfills SET cancelled_at = clock_timestamp(), finished_at = clock_timestamp(),
            cancelled_by = author WHERE id = b.id;
        PERFORM pgsched.cancel(r.id, format('backfill %s was cancelled%s', b.id, coalesce(': ' || cancel_backfill.why, '')))
        FROM (SELECT id FROM pgsched.runs WHERE backfill_id = b.id AND phase < 3 /* open */ ORDER BY id) r;
    END LOOP;
    RETURN done;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.canonical_json(value jsonb)
 RETURNS jsonb
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    RETURN CASE jsonb_typeof(value)
        WHEN 'number' THEN to_jsonb(trim_scale(value::numeric))
        WHEN 'array' THEN (SELECT coalesce(jsonb_agg(pgsched.canonical_json(e.item) ORDER BY e.place), '[]')
                           FROM jsonb_array_elements(value) WITH ORDINALITY e(item, place))
        WHEN 'object' THEN (SELECT coalesce(jsonb_object_agg(e.key, pgsched.canonical_json(e.value)), '{}')
                            FROM jsonb_each(value) e)
        ELSE value END;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.carry_trace(run_id bigint, how text, trace jsonb)
 RETURNS void
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    UPDATE pgsched.runs SET options = coalesce(options, '{}') || jsonb_build_object('trace', trace)
    WHERE id = run_id AND how IN ('created', 'replaced') AND phase < 3 /* open */ AND attempt = 0
        AND NOT coalesce(options, '{}') ? 'trace' AND jsonb_typeof(trace) = 'object'
        AND octet_length(trace::text) <= 1000 AND pgsched.may_change(owner)
$function$;

CREATE OR REPLACE FUNCTION pgsched.check_args(task text, args jsonb, OUT fits boolean, OUT problem text)
 RETURNS record
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    schema jsonb := (SELECT t.schema FROM pgsched.tasks t WHERE t.task = check_args.task
                     ORDER BY t.first_seen_at DESC, t.app LIMIT 1);
BEGIN
    problem := CASE
        WHEN coalesce(schema, '{}') = '{}' THEN format('not checked: no worker has registered the arguments of task "%s"%s', left(task, 200),
            CASE WHEN schema IS NULL THEN pgsched.did_you_mean(task, pgsched.offered_tasks()) END)
        WHEN jsonb_typeof(args) = 'array' THEN 'not checked: arguments by position'
        ELSE (SELECT m.misfit FROM pgsched.json_misfit(schema, coalesce(args, '{}'), '', schema, 60, 50000) m) END;
    fits := CASE WHEN problem IS NULL THEN true WHEN NOT starts_with(problem, 'not checked: ') THEN false END;
    problem := CASE WHEN starts_with(problem, ': ') THEN 'args' || problem ELSE problem END;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.check_key(key text)
 RETURNS void
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF key IS NULL OR length(key) NOT BETWEEN 1 AND 256 OR starts_with(key, '/') THEN
        PERFORM pgsched.raise_bad_value(format('key: expected 1 to 256 characters, the first of them no slash, got %s',
            coalesce('"' || left(key, 60) || '"', 'null')), 'store');
    END IF;
    PERFORM pgsched.check_name('key', left(CASE WHEN strpos(key, '/') = 0 THEN key || '/' ELSE key END, 200), (SELECT r.owner FROM pgsched.store_roots r WHERE r.root = pgsched.store_root(check_key.key)));
END $function$;

CREATE OR REPLACE FUNCTION pgsched.check_keys(unique_key text, on_conflict text, idempotency_key text, retention interval, tags text[], due timestamp with time zone)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    problem text := coalesce(
        CASE WHEN unique_key IS NOT NULL THEN pgsched.bad_text('unique_key', unique_key, 500) END,
        pgsched.not_one_of('on_conflict', on_conflict, ARRAY['return', 'reject', 'replace', 'keep_time', 'merge']),
        CASE WHEN idempotency_key IS NOT NULL THEN pgsched.bad_text('idempotency_key', idempotency_key, 500) END,
        pgsched.bad_interval('idempotency_retention', retention, '1 second'),
        CASE WHEN tags IS NOT NULL THEN pgsched.bad_tags(tags) END,
        pgsched.bad_instant('at', due));
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.check_name(what text, name text, owner name)
 RETURNS void
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF name IS NULL OR length(name) NOT BETWEEN 1 AND 200 THEN
        PERFORM pgsched.raise_bad_value(format('name: expected 1 to 200 characters, got %s', coalesce(length(name)::text, 'null')), 'locks');
    ELSIF NOT pgsched.may_use(name, owner) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = CASE
            WHEN EXISTS (SELECT FROM pgsched.name_grants g WHERE starts_with(check_name.name, g.prefix))
            THEN format('permission denied: %s "%s" is not granted to role "%s": an operator grants it (pgsched.grant_names)',
                        what, name, pgsched.caller())
            ELSE format('permission denied: %s "%s" belongs to the role that used it first, not to role "%s": take another'
                        ' name, or let an operator grant it to both (pgsched.grant_names)', what, name, pgsched.caller()) END;
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.check_prefix(prefix text)
 RETURNS text
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    granted boolean;
    mine boolean;
BEGIN
    SELECT count(*) > 0, coalesce(bool_or(pg_has_role(pgsched.caller(), o.oid, 'MEMBER')), false) INTO granted, mine
    FROM pgsched.name_grants g LEFT JOIN pg_roles o ON o.rolname = g.role WHERE starts_with(g.prefix, check_prefix.prefix);
    IF NOT mine AND pgsched.reads_all() AND NOT pgsched.may_use(left(prefix, 200),
        (SELECT r.owner FROM pgsched.store_roots r WHERE r.root = pgsched.store_root(prefix)))
    THEN
        RETURN 'read';
    ELSIF NOT mine THEN
        PERFORM pgsched.check_key(prefix);
    END IF;
    RETURN CASE WHEN granted AND NOT pgsched.reads_all() THEN 'some' ELSE 'all' END;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.check_room(l pgsched.locks, owner name, number bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF NOT pgsched.has_room('lock_places', owner, number, 100000) THEN
        PERFORM pgsched.sweep_sessions(100, owner);
        IF NOT pgsched.has_room('lock_places', owner, number, 100000) THEN
            PERFORM pgsched.raise_bad_value(format('name: role "%s" holds or waits for 100000 locks, and may for no more', owner), 'lock_places');
        END IF;
    END IF;
    IF l.last_place % 100 <> 1 THEN
        RETURN;
    END IF;
    -- below: conditions with queries cost their start, also where they are not reached
    IF (SELECT count(*) FROM (SELECT FROM pgsched.lock_places p WHERE p.lock = l.name LIMIT 20001) few) = 20001
        AND NOT pgsched.forget_places(l.name) THEN
        PERFORM pgsched.raise_bad_value(format('name: 20000 hold "%s" or wait for it, and there can be no more', l.name), 'lock_places');
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.check_value(value jsonb)
 RETURNS void
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF value IS NULL OR octet_length(value::text) > 65536 THEN
        PERFORM pgsched.raise_bad_value(format('value: expected JSON of at most 64 KiB, got %s',
            coalesce(octet_length(value::text) || ' bytes', 'null')), 'store');
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.claim_limit(notes integer[], places integer)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE STRICT
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT min(n.place) - 1 FROM (
        SELECT place, note, sum(note >> 2) OVER (ORDER BY place ROWS UNBOUNDED PRECEDING) AS bytes
        FROM unnest(notes) WITH ORDINALITY AS u (note, place)
    ) n
    WHERE n.note & 3 > 0 AND n.place > places
       OR n.place > 1 AND ((n.note | notes[1]) & 2 > 0 OR n.bytes > 16777216)
$function$;

CREATE OR REPLACE FUNCTION pgsched.command_args_error(kind text, args jsonb)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    known text[] := CASE kind WHEN 'command' THEN '{argv,env,cwd,stdin}' ELSE '{env,cwd,stdin}' END;
    given jsonb := CASE WHEN jsonb_typeof(args) = 'array' AND kind = 'command' THEN jsonb_build_object('argv', args)
                        WHEN args = '[]' THEN '{}' ELSE args END;
    found record;
    one record;
    type text;
BEGIN
    FOR found IN SELECT * FROM jsonb_each(given) LOOP
        type := jsonb_typeof(found.value);
        IF found.key <> ALL (known) THEN
            RETURN format('args.%s: no such key; known are %s', left(found.key, 60), array_to_string(known, ', '));
        ELSIF found.key = 'argv' THEN
            IF type <> 'array' THEN
                RETURN format('args.argv: expected an array of strings, got %s', type);
            END IF;
            FOR one IN SELECT ordinality - 1 AS n, jsonb_typeof(value) AS type
                       FROM jsonb_array_elements(found.value) WITH ORDINALITY WHERE jsonb_typeof(value) <> 'string' LIMIT 1 LOOP
                RETURN format('args.argv[%s]: expected a string, got %s', one.n, one.type);
            END LOOP;
        ELSIF found.key = 'env' THEN
            IF type <> 'object' THEN
                RETURN format('args.env: expected an object of strings, got %s', type);
            END IF;
            FOR one IN SELECT key, jsonb_typeof(value) AS type FROM jsonb_each(found.value)
                       WHERE jsonb_typeof(value) <> 'string' OR key = '' OR strpos(key, '=') > 0
                          OR starts_with(key, 'PGSCHED_') LIMIT 1 LOOP
                RETURN 'args.env: ' || CASE
                    WHEN one.type <> 'string' THEN format('%s: expected a string, got %s', left(one.key, 60), one.type)
                    WHEN starts_with(one.key, 'PGSCHED_') THEN left(one.key, 60) || ' is set by pgsched itself'
                    ELSE format('"%s" is not the name of a variable', left(one.key, 60)) END;
            END LOOP;
        ELSIF type NOT IN ('string', 'null') THEN
            RETURN format('args.%s: expected a string, got %s', found.key, type);
        ELSIF found.key = 'cwd' AND found.value = '""' THEN
            RETURN 'args.cwd: must not be empty';
        END IF;
    END LOOP;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.commit_durably()
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') IN ('off', 'local')
$function$;

CREATE OR REPLACE FUNCTION pgsched.declare_limits(app text, update boolean)
 RETURNS TABLE(name text, done text)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
BEGIN
    IF pgsched.other_owner(app) IS NOT NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH newest AS MATERIALIZED (
        SELECT DISTINCT ON (t.task) t.task, t.app, t.options FROM pgsched.tasks t
        WHERE t.task IN (SELECT o.task FROM pgsched.tasks o WHERE o.app = declare_limits.app
                         UNION SELECT substr(l.name, 6) FROM pgsched.limits l WHERE l.declared_by = declare_limits.app)
        ORDER BY t.task, t.first_seen_at DESC, t.app
    ), declared AS MATERIALIZED (
        SELECT 'task:' || n.task AS name, n.app, (n.options ->> 'concurrency')::integer AS concurrency,
            (n.options ->> 'rate')::integer AS rate,
            make_interval(secs => (n.options ->> 'rate_period')::float8) AS rate_period
        FROM newest n WHERE n.options ?| '{concurrency,rate}'
    ), different AS MATERIALIZED (
        -- only these are locked: the start of a fleet waits for nobody. A limit comes with its task from another app
        SELECT w.* FROM declared w LEFT JOIN pgsched.limits l ON l.name = w.name
        WHERE w.app = declare_limits.app AND (l.name IS NULL OR declare_limits.update AND l.declared_by IS NOT NULL
            AND (l.concurrency, l.rate, l.rate_period, l.declared_by)
                IS DISTINCT FROM (w.concurrency, w.rate, w.rate_period, w.app))
    ), gone AS (
        DELETE FROM pgsched.limits l WHERE declare_limits.update AND l.declared_by = declare_limits.app
            AND l.name NOT IN (SELECT w.name FROM declared w) RETURNING l.name
    ), written AS (
        INSERT INTO pgsched.limits AS l (name, concurrency, rate, rate_period, declared_by)
        SELECT d.name, d.concurrency, d.rate, d.rate_period, d.app FROM different d
        ON CONFLICT ON CONSTRAINT limits_pkey DO UPDATE SET concurrency = excluded.concurrency, rate = excluded.rate,
            rate_period = excluded.rate_period, rate_burst = CASE WHEN excluded.rate IS NOT NULL THEN l.rate_burst END,
            declared_by = excluded.declared_by
            WHERE l.declared_by IS NOT NULL
        RETURNING l.name, CASE WHEN l.xmax = 0 THEN 'created' ELSE 'updated' END AS done
    )
    SELECT w.name, w.done FROM written w UNION ALL SELECT g.name, 'removed' FROM gone g;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.delete_calendar(calendar text)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    users text := (SELECT string_agg(u.name, ', ' ORDER BY u.name) FROM (
        SELECT j.name FROM pgsched.jobs j WHERE j.calendar = delete_calendar.calendar AND pgsched.may_change(j.owner) LIMIT 5) u);
    used boolean := EXISTS (SELECT FROM pgsched.jobs j WHERE j.calendar = delete_calendar.calendar);
    found text;
BEGIN
    PERFORM pgsched.refuse_others(format('calendar "%s"', c.name), c.owner) FROM pgsched.calendars c
    WHERE c.name = delete_calendar.calendar;
    IF used THEN
        PERFORM pgsched.raise_bad_value(format('calendar: jobs use it%s', coalesce(': ' || users, '')), 'calendars');
    END IF;
    DELETE FROM pgsched.calendars c WHERE c.name = delete_calendar.calendar AND pgsched.may_change(c.owner)
    RETURNING c.name INTO found;
    RETURN found;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.delete_job(job text, OUT id bigint, OUT running bigint)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
BEGIN
    DELETE FROM pgsched.jobs j WHERE j.name = delete_job.job AND pgsched.may_change(j.owner) RETURNING j.id INTO delete_job.id;
    running := CASE WHEN delete_job.id IS NOT NULL THEN (SELECT count(*) FROM pgsched.runs r
        WHERE r.job_id = delete_job.id AND r.phase < 3 /* open */ AND r.state = 'running') END;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.dependencies_after_delete()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
BEGIN
    UPDATE pgsched.runs r SET available_at = '8999-01-01 00:00Z' FROM removed d
    WHERE r.id = d.run_id AND r.phase = 0 /* waiting */ AND r.available_at = '9000-01-01 00:00Z' AND d.state <> 'met';
    IF FOUND THEN
        PERFORM pgsched.tell_leader();
    END IF;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.dependencies_after_insert()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
DECLARE
    -- what is read to find a circle, of all edges of the statement together: the leader makes edges as well, between ticks
    most constant integer := 10000;
    children bigint[];
    suspects bigint[];
    wrong bigint;
    ends_at timestamptz;
BEGIN
    SELECT array_agg(DISTINCT a.run_id) INTO children FROM added a;
    IF children IS NULL THEN
        RETURN NULL;
    END IF;
    -- first the lock: a worker must not claim them between this question and the update
    PERFORM FROM pgsched.runs r WHERE r.id = ANY (children) ORDER BY r.id FOR NO KEY UPDATE;
    -- sub-selects, here and below, and not NOT EXISTS: as joins they would read all runs for each edge
    SELECT c.id INTO wrong FROM unnest(children) c(id) WHERE (
        SELECT true FROM pgsched.runs r WHERE r.id = c.id AND r.state IN ('waiting', 'scheduled', 'queued')
            AND r.started_at IS NULL) IS NULL LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'check_violation', TABLE = 'dependencies', MESSAGE =
            format('run_id: run %s can wait for nothing: it has started, has ended or does not exist', wrong);
    END IF;
    -- The lock keeps the pruner from one that has ended. One that ends from now on is counted, and may go, only when this
    -- transaction has ended (leader/rollups.py). An old snapshot tells neither whether one has ended by now, nor whether
    -- it is there still: there any is locked, and that fails where one has gone.
    PERFORM FROM pgsched.runs r WHERE r.id = ANY (ARRAY(SELECT DISTINCT a.parent_id FROM added a))
        AND (r.phase >= 3 /* ended */ OR current_setting('transaction_isolation') IN ('repeatable read', 'serializable'))
    FOR KEY SHARE;
    SELECT a.parent_id INTO wrong FROM added a
    WHERE (SELECT r.id FROM pgsched.runs r WHERE r.id = a.parent_id) IS NULL LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'foreign_key_violation', TABLE = 'dependencies', MESSAGE =
            format('parent_id: there is no run %s to wait for; it may have been pruned', wrong);
    END IF;
    IF EXISTS (SELECT FROM pgsched.dependencies d WHERE d.parent_id > d.run_id AND d.state = 'open') THEN
        -- a circle that is new has a new edge to a later run, or an older edge leads to a run that has a new one
        suspects := ARRAY(
            SELECT a.run_id FROM added a WHERE a.parent_id > a.run_id
            UNION
            SELECT older.parent_id FROM (
                SELECT d.run_id, d.parent_id FROM (
                    SELECT d.run_id, d.parent_id FROM unnest(children) c(id) CROSS JOIN LATERAL (
                        SELECT e.run_id, e.parent_id FROM pgsched.dependencies e
                        WHERE e.parent_id = c.id AND e.state = 'open' LIMIT 1000) d
                    LIMIT most) d
                EXCEPT
                SELECT a.run_id, a.parent_id FROM added a) older);
        ends_at := clock_timestamp() + interval '0.02 s';
        FOREACH wrong IN ARRAY suspects LOOP
            IF pgsched.dependency_circle(wrong, 0, greatest(most / cardinality(suspects), 100)) IS NOT NULL THEN
                RAISE EXCEPTION USING ERRCODE = 'check_violation', TABLE = 'dependencies', MESSAGE =
                    format('parent_id: run %s would wait for itself, by way of the runs that it waits for', wrong);
            END IF;
            EXIT WHEN clock_timestamp() > ends_at;
        END LOOP;
    END IF;
    UPDATE pgsched.runs r SET state = 'waiting', ready_at = NULL, available_at = '8999-01-01 00:00Z',
        options = nullif(coalesce(r.options, '{}')
            || CASE WHEN r.available_at > clock_timestamp() AND r.available_at < '8998-01-01 00:00Z'
                    THEN jsonb_build_object('not_before', r.available_at) ELSE '{}' END
            || CASE WHEN r.state = 'waiting' AND r.ready_at IS NULL AND r.job_id IS NOT NULL
                         AND r.available_at < '8998-01-01 00:00Z'
                    THEN '{"overlap": true}'::jsonb ELSE '{}' END, '{}')
    WHERE r.id = ANY (children) AND (r.state <> 'waiting' OR r.available_at <> '8999-01-01 00:00Z');
    PERFORM pgsched.tell_leader();
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.dependencies_no_update()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', TABLE = 'dependencies', MESSAGE =
        'dependencies: the runs of an edge cannot be changed: delete it, and insert another';
END $function$;

CREATE OR REPLACE FUNCTION pgsched.dependency_circle(child bigint, lowest bigint, most integer)
 RETURNS bigint
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
    WITH RECURSIVE above AS (
        SELECT d.parent_id AS id FROM pgsched.dependencies d
        WHERE d.run_id = child AND d.state = 'open' AND d.parent_id >= lowest
        UNION
        SELECT d.parent_id FROM above JOIN pgsched.dependencies d ON d.run_id = above.id
        WHERE d.state = 'open' AND d.parent_id >= lowest
    )
    SELECT seen.id FROM (SELECT above.id FROM above LIMIT most) seen
    WHERE (SELECT true FROM pgsched.dependencies d
           WHERE d.run_id = seen.id AND d.parent_id = child AND d.state = 'open') LIMIT 1
$function$;

CREATE OR REPLACE FUNCTION pgsched.describe_times(t pgsched.calendar_times)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT format('excluded by calendar %s: ', t.calendar) || concat_ws(' ',
        CASE WHEN t.from_date = t.until_date THEN to_char(t.from_date, 'YYYY-MM-DD')
             ELSE to_char(t.from_date, 'YYYY-MM-DD') || ' to ' || to_char(t.until_date, 'YYYY-MM-DD') END,
        (SELECT string_agg((ARRAY['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'])[d.day + 1], ', ' ORDER BY d.day)
         FROM (SELECT DISTINCT day FROM unnest(t.weekdays) w(day)) d),
        regexp_replace(t.from_time::text, ':00$', '') || '-' || regexp_replace(t.until_time::text, ':00$', ''))
        || coalesce(' (' || nullif(t.reason, '') || ')', '')
$function$;

CREATE OR REPLACE FUNCTION pgsched.did_you_mean(word text, known text[])
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    WITH typed AS MATERIALIZED (
        SELECT w.small, length(w.small) AS size,
            ARRAY(SELECT overlay(w.small PLACING '' FROM n FOR 1) FROM generate_series(1, length(w.small)) n) AS shorter,
            ARRAY(SELECT substr(w.small, n, 2) FROM generate_series(1, length(w.small) - 1) n) AS pairs
        FROM (SELECT lower(word) AS small) w WHERE length(w.small) BETWEEN 1 AND 200
    ), alike AS (
        SELECT k.name, CASE
            WHEN k.small = t.small OR right(k.small, t.size + 1) IN ('.' || t.small, '/' || t.small) THEN 3
            WHEN greatest(k.size, t.size) >= 4 AND abs(k.size - t.size) <= 1 AND k.strange <= 1
                AND (k.small = ANY (t.shorter) OR EXISTS (
                    SELECT FROM generate_series(1, k.size) n, overlay(k.small PLACING '' FROM n FOR 1) s(text)
                    WHERE s.text = t.small OR s.text = ANY (t.shorter))) THEN 2
            -- of names whose lengths differ more, or that have more other characters, too few pairs can be common ones
            WHEN least(k.size, t.size) >= 0.5 * greatest(k.size, t.size) AND k.strange <= 0.4 * k.size AND k.size + t.size > 2 THEN (
                SELECT 2.0 * count(*) FROM generate_series(1, k.size - 1) n WHERE substr(k.small, n, 2) = ANY (t.pairs)
                ) / (k.size + t.size - 2) END AS likeness, k.place
        FROM typed t CROSS JOIN LATERAL (
            SELECT u.name, lower(u.name) AS small, length(lower(u.name)) AS size,
                length(translate(lower(u.name), t.small, '')) AS strange, u.place
            FROM unnest(known) WITH ORDINALITY u(name, place)) k
        WHERE k.name <> word
    )
    SELECT coalesce('; did you mean ' || string_agg(b.name, ' or ' ORDER BY b.likeness DESC, b.place) || '?', '')
    FROM (SELECT a.* FROM alike a WHERE a.likeness >= CASE WHEN (SELECT max(m.likeness) FROM alike m) >= 2 THEN 2 ELSE 0.6 END
          ORDER BY a.likeness DESC, a.place LIMIT 3) b
$function$;

CREATE OR REPLACE FUNCTION pgsched.east_of_utc(moment timestamp with time zone, zone text)
 RETURNS interval
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    RETURN (moment AT TIME ZONE zone) - (moment AT TIME ZONE 'UTC');
EXCEPTION WHEN invalid_parameter_value OR datetime_field_overflow THEN
    RETURN interval '0';
END $function$;

CREATE OR REPLACE FUNCTION pgsched.edit_allowed(was pgsched.jobs, j pgsched.jobs)
 RETURNS pgsched.jobs
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    judged pgsched.jobs;
    problem text;
BEGIN
    IF j.schedule IS NOT NULL AND was.schedule IS NULL AND j.run_at IS NOT DISTINCT FROM was.run_at THEN
        j.run_at := NULL;  -- a job that was to run once gets a schedule; the insert may have filled run_at in
    END IF;
    judged := j;
    IF (j.kind, j.args) IS NOT DISTINCT FROM (was.kind, was.args) THEN
        judged.args := '{}';
    END IF;
    problem := pgsched.job_error(judged);
    IF j.owner IS DISTINCT FROM was.owner THEN
        problem := coalesce(problem, pgsched.bad_owner(j.owner));
    ELSIF (j.kind, j.task, j.args) IS DISTINCT FROM (was.kind, was.task, was.args)
          AND pgsched.bad_owner(was.owner) IS NOT NULL THEN
        j.owner := pgsched.caller();  -- who says what runs, and may not act for the owner, becomes it
    END IF;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'jobs');
    END IF;
    RETURN j;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.edit_once(was pgsched.jobs, j pgsched.jobs, moment timestamp with time zone, resumed text)
 RETURNS pgsched.jobs
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    -- its slot is run_at, whatever its time zone
    retimed boolean := was.schedule IS NOT NULL OR j.run_at IS DISTINCT FROM was.run_at;
    replanned boolean := retimed OR (j.timezone, j.starts_at, j.calendar, j.on_excluded)
        IS DISTINCT FROM (was.timezone, was.starts_at, was.calendar, was.on_excluded);
BEGIN
    IF retimed OR resumed = 'now' THEN
        IF NOT retimed THEN
            was.ends_at := j.ends_at;
        END IF;
        PERFORM pgsched.pass_over(was, moment, retimed);
        j.decided_until := greatest(was.decided_until, CASE
            WHEN was.schedule IS NOT NULL THEN moment - interval '1 microsecond'
            -- not one that a calendar has shifted to later
            WHEN was.run_at <= moment AND (retimed OR coalesce(was.next_run_at <= moment, true)) THEN was.run_at END);
    END IF;
    IF retimed THEN
        j.run_at := coalesce(j.run_at, moment);
        IF j.run_at <= j.decided_until THEN
            PERFORM pgsched.raise_bad_value(format(
                'run_at: %s is not later than %s, which is already decided', j.run_at, j.decided_until), 'jobs');
        END IF;
    END IF;
    IF replanned THEN
        j.error := NULL;
        j.error_at := NULL;
    END IF;
    IF replanned OR resumed IS NOT NULL THEN
        j.next_run_at := CASE WHEN j.run_at > j.decided_until THEN
            CASE WHEN j.on_excluded = 'skip' THEN j.run_at ELSE least(j.run_at, moment) END END;
    END IF;
    RETURN j;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.edit_pause(was pgsched.jobs, j pgsched.jobs, moment timestamp with time zone)
 RETURNS pgsched.jobs
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF j.paused THEN
        j.paused_at := CASE WHEN was.paused THEN was.paused_at ELSE moment END;
        j.paused_by := coalesce(j.paused_by, CASE WHEN was.paused THEN was.paused_by END, session_user);
    ELSE
        j.paused_at := NULL;
        j.paused_by := NULL;
        j.paused_reason := NULL;
        j.resume_from := 'now';
        j.resumed_at := CASE WHEN was.paused THEN moment ELSE was.resumed_at END;
    END IF;
    RETURN j;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.edit_schedule(was pgsched.jobs, j pgsched.jobs, moment timestamp with time zone, resumed text)
 RETURNS pgsched.jobs
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    limits_moved boolean := (j.ends_at, j.max_runs) IS DISTINCT FROM (was.ends_at, was.max_runs);
BEGIN
    IF (j.schedule, j.timezone, j.run_at, j.starts_at)
       IS DISTINCT FROM (was.schedule, was.timezone, was.run_at, was.starts_at) THEN
        PERFORM pgsched.pass_over(was, moment, true);
        j.anchor_at := coalesce(j.starts_at, moment);
        j.decided_until := greatest(was.decided_until, moment);
        IF j.decided_until > moment THEN
            PERFORM pgsched.pass_over_ahead(j, moment);
        END IF;
        j.error := NULL;
        j.error_at := NULL;
        j.next_run_at := moment;
    ELSIF was.next_run_at IS NULL AND was.error IS NULL THEN  -- it had ended
        IF limits_moved AND pgsched.pass_over_end(was, j, moment) THEN
            j.decided_until := greatest(was.decided_until, least(moment, j.ends_at));
            j.next_run_at := moment;
        END IF;
    ELSIF resumed = 'now' THEN
        was.ends_at := j.ends_at;
        PERFORM pgsched.pass_over(was, moment, false);
        -- never beyond the end: what comes behind it is passed over by the edit that puts the end off
        j.decided_until := greatest(was.decided_until, least(moment, j.ends_at));
        j.next_run_at := moment;
    ELSIF resumed = 'pause' THEN
        j.next_run_at := coalesce(was.next_run_at, moment);  -- the mark stays: catch_up decides what came since
    ELSIF limits_moved THEN
        j.next_run_at := moment;  -- the leader plans it again
    END IF;
    IF (j.calendar, j.on_excluded) IS DISTINCT FROM (was.calendar, was.on_excluded) THEN
        -- which nominal slots are decided depends on the calendar that held until now: without one, those up to the mark
        IF was.shifts IS NULL AND was.on_excluded = 'skip' AND j.on_excluded <> 'skip' THEN
            j.shifts := jsonb_build_object('at', to_jsonb(j.decided_until));
        END IF;
        IF j.next_run_at IS NOT NULL OR pgsched.may_go_on(j) THEN
            j.next_run_at := moment;
        END IF;
    END IF;
    IF (j.shifts ->> 'at')::timestamptz > j.decided_until THEN
        j.shifts := NULL;  -- the job had yet to start then
    END IF;
    RETURN j;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.elapsed(length interval)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN l.s < 1 THEN trim_scale(round(greatest(l.s, 0), 3)) || ' seconds'
        ELSE coalesce(string_agg(format('%s %s%s', p.n, p.unit, CASE WHEN p.n = 1 THEN '' ELSE 's' END), ' ' ORDER BY p.place), '0 seconds') END
    FROM (SELECT extract(epoch FROM length)::numeric AS s) l
    LEFT JOIN LATERAL (
        SELECT d.* FROM (VALUES (1, div(l.s, 86400), 'day'), (2, div(l.s % 86400, 3600), 'hour')) d(place, n, unit) WHERE l.s >= 172800
        UNION ALL
        SELECT h.* FROM (VALUES (1, div(l.s, 3600), 'hour'), (2, div(l.s % 3600, 60), 'minute'), (3, div(l.s % 60, 1), 'second')) h(place, n, unit)
        WHERE l.s < 172800
    ) p ON p.n > 0
    GROUP BY l.s
$function$;

CREATE OR REPLACE FUNCTION pgsched.end_of(at timestamp with time zone)
 RETURNS timestamp with time zone
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT at + CASE WHEN date_trunc('second', at) = at THEN interval '1 second' ELSE interval '1 microsecond' END
$function$;

CREATE OR REPLACE FUNCTION pgsched.end_open_runs(job_id bigint, terminate boolean, why text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    r pgsched.runs;
BEGIN
    FOR r IN SELECT * FROM pgsched.runs WHERE job_id = end_open_runs.job_id AND phase < 3 /* open */ AND origin <> 'backfill'
             ORDER BY id LOOP
        PERFORM pgsched.cancel(r.id, why);
        CONTINUE WHEN NOT terminate;
        SELECT * INTO r FROM pgsched.runs WHERE id = r.id AND state = 'running' FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, started_at, worker_id, worker, error)
        SELECT r.id, r.token, r.attempt, 'cancelled', r.started_at, r.worker_id,
            (SELECT name FROM pgsched.workers WHERE id = r.worker_id), r.cancel_reason
        ON CONFLICT (run_id, token) DO NOTHING;
        UPDATE pgsched.runs SET state = 'cancelled', finished_at = clock_timestamp(), token = NULL,
            reason = cancel_reason WHERE id = r.id;
    END LOOP;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.enqueue(task text, args jsonb DEFAULT '{}'::jsonb, kind text DEFAULT 'task'::text, queue text DEFAULT NULL::text, priority integer DEFAULT NULL::integer, delay interval DEFAULT NULL::interval, at timestamp with time zone DEFAULT NULL::timestamp with time zone, unique_key text DEFAULT NULL::text, max_attempts integer DEFAULT NULL::integer, timeout interval DEFAULT NULL::interval, unique_scope text DEFAULT NULL::text, on_conflict text DEFAULT NULL::text, idempotency_key text DEFAULT NULL::text, idempotency_retention interval DEFAULT NULL::interval, tags text[] DEFAULT NULL::text[], after bigint[] DEFAULT NULL::bigint[], after_any bigint[] DEFAULT NULL::bigint[], on_failure text DEFAULT 'cancel'::text, concurrency_key text DEFAULT NULL::text, unique_by text[] DEFAULT NULL::text[], debounce_max interval DEFAULT NULL::interval, kill_after interval DEFAULT NULL::interval, backoff text DEFAULT NULL::text, backoff_base interval DEFAULT NULL::interval, backoff_max interval DEFAULT NULL::interval, backoff_jitter double precision DEFAULT NULL::double precision, expires interval DEFAULT NULL::interval, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, keep interval DEFAULT NULL::interval)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    got record;
BEGIN
    IF unique_by IS NOT NULL OR strpos(unique_key, '{') > 0 OR coalesce(kind, 'task') = 'task' AND pgsched.has_options(task) THEN
        SELECT k.unique_key, k.unique_scope, k.on_conflict, k.debounce_max, k.delay, k.idempotency_retention
        INTO unique_key, unique_scope, on_conflict, debounce_max, delay, idempotency_retention
        FROM pgsched.resolve_key(task, args, kind, unique_by, unique_key, unique_scope, on_conflict, debounce_max, delay,
                                 idempotency_retention) k;
    END IF;
    got := pgsched.make_run(task, args, kind, queue, priority, delay, at, unique_key,
        max_attempts, timeout, unique_scope, on_conflict, idempotency_key, idempotency_retention, tags, after, after_any,
        on_failure, concurrency_key, debounce_max, kill_after, backoff, backoff_base, backoff_max, backoff_jitter,
        expires, expires_at, keep);
    IF got.how = 'rejected' THEN
        RAISE EXCEPTION USING ERRCODE = 'unique_violation', COLUMN = 'unique_key', TABLE = 'runs', SCHEMA = 'pgsched',
            MESSAGE = format('unique_key: run %s has "%s" already', got.id, left(unique_key, 60));
    END IF;
    RETURN got.id;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.enqueue_result(task text, args jsonb DEFAULT '{}'::jsonb, kind text DEFAULT 'task'::text, queue text DEFAULT NULL::text, priority integer DEFAULT NULL::integer, delay interval DEFAULT NULL::interval, at timestamp with time zone DEFAULT NULL::timestamp with time zone, unique_key text DEFAULT NULL::text, max_attempts integer DEFAULT NULL::integer, timeout interval DEFAULT NULL::interval, unique_scope text DEFAULT NULL::text, on_conflict text DEFAULT NULL::text, idempotency_key text DEFAULT NULL::text, idempotency_retention interval DEFAULT NULL::interval, tags text[] DEFAULT NULL::text[], after bigint[] DEFAULT NULL::bigint[], after_any bigint[] DEFAULT NULL::bigint[], on_failure text DEFAULT 'cancel'::text, concurrency_key text DEFAULT NULL::text, unique_by text[] DEFAULT NULL::text[], debounce_max interval DEFAULT NULL::interval, kill_after interval DEFAULT NULL::interval, backoff text DEFAULT NULL::text, backoff_base interval DEFAULT NULL::interval, backoff_max interval DEFAULT NULL::interval, backoff_jitter double precision DEFAULT NULL::double precision, expires interval DEFAULT NULL::interval, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, keep interval DEFAULT NULL::interval, OUT id bigint, OUT how text)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF unique_by IS NOT NULL OR strpos(unique_key, '{') > 0 OR coalesce(kind, 'task') = 'task' AND pgsched.has_options(task) THEN
        SELECT k.unique_key, k.unique_scope, k.on_conflict, k.debounce_max, k.delay, k.idempotency_retention
        INTO unique_key, unique_scope, on_conflict, debounce_max, delay, idempotency_retention
        FROM pgsched.resolve_key(task, args, kind, unique_by, unique_key, unique_scope, on_conflict, debounce_max, delay,
                                 idempotency_retention) k;
    END IF;
    SELECT m.id, m.how INTO id, how FROM pgsched.make_run(task, args, kind, queue, priority, delay, at, unique_key,
        max_attempts, timeout, unique_scope, on_conflict, idempotency_key, idempotency_retention, tags, after, after_any,
        on_failure, concurrency_key, debounce_max, kill_after, backoff, backoff_base, backoff_max, backoff_jitter,
        expires, expires_at, keep) m;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.entry_state(queue text, concurrency_key text)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.every_interval(schedule text)
 RETURNS interval
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET standard_conforming_strings TO 'on'
AS $function$
    SELECT make_interval(secs => coalesce(p[1], '0')::float8 * 86400 + coalesce(p[2], '0')::float8 * 3600
                                 + coalesce(p[3], '0')::float8 * 60 + coalesce(p[4], '0')::float8)
    FROM regexp_match(schedule,
        '^[ \t]*@every[ \t]+(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?[ \t]*$', 'i') AS p
    WHERE p IS NOT NULL
$function$;

CREATE OR REPLACE FUNCTION pgsched.excluded_at(j pgsched.jobs, wall timestamp without time zone)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT coalesce(pgsched.excluded_date(j.id, wall::date), CASE WHEN j.calendar IS NOT NULL THEN (
            SELECT pgsched.describe_times(t) FROM pgsched.calendar_times t
            WHERE t.calendar = j.calendar AND (t.from_date IS NULL OR wall::date BETWEEN t.from_date AND t.until_date)
                AND (t.weekdays IS NULL OR extract(dow FROM wall)::integer = ANY (t.weekdays))
                AND (t.from_time IS NULL OR wall::time >= t.from_time AND wall::time < t.until_time)
            -- whole days first, by their beginning; then the others
            ORDER BY t.from_date IS NULL OR t.weekdays IS NOT NULL OR t.from_time IS NOT NULL,
                CASE WHEN t.weekdays IS NULL AND t.from_time IS NULL THEN t.from_date END,
                CASE WHEN t.weekdays IS NULL AND t.from_time IS NULL THEN t.until_date END, t.id LIMIT 1)
        END) || CASE WHEN j.on_excluded = 'skip' THEN '' ELSE '; no time within 31 days is allowed' END
$function$;

CREATE OR REPLACE FUNCTION pgsched.excluded_date(job_id bigint, day date)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN c.from_date = c.until_date THEN 'excluded date ' || to_char(c.from_date, 'YYYY-MM-DD')
                ELSE format('excluded dates %s to %s', to_char(c.from_date, 'YYYY-MM-DD'), to_char(c.until_date, 'YYYY-MM-DD')) END
        || coalesce(': ' || nullif(c.reason, ''), '')
    FROM pgsched.job_calendars c
    WHERE c.job_id = excluded_date.job_id AND c.from_date <= excluded_date.day AND c.until_date >= excluded_date.day
    ORDER BY c.from_date LIMIT 1
$function$;

CREATE OR REPLACE FUNCTION pgsched.excluded_mark(j pgsched.jobs)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN j.on_excluded <> 'skip' OR j.shifts IS NOT NULL THEN concat_ws(' ', j.on_excluded, j.calendar,
        (SELECT c.version FROM pgsched.calendars c WHERE c.name = j.calendar),
        (SELECT md5(string_agg(to_char(d.from_date, 'J') || '-' || to_char(d.until_date, 'J'), ',' ORDER BY d.from_date))
         FROM pgsched.job_calendars d WHERE d.job_id = j.id)) END
$function$;

CREATE OR REPLACE FUNCTION pgsched.explain(job text, at timestamp with time zone DEFAULT NULL::timestamp with time zone)
 RETURNS text
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
AS $function$
DECLARE
    j pgsched.jobs := pgsched.job_named(explain.job);
    problem text := pgsched.bad_instant('at', at);
    known timestamptz[] := ARRAY(
        SELECT k.slot FROM pgsched.known_slots(j) k
        UNION SELECT p.until_at FROM pgsched.passed_over p WHERE p.job_id = j.id AND p.schedule IS NULL ORDER BY 1);
    -- before this and behind the last known one there may be slots that are not known; null: there are none
    after_at timestamptz := (SELECT k.after_at FROM pgsched.next_slots k WHERE k.job_id = j.id
        AND (k.schedule, k.timezone, k.anchor_at) = (j.schedule, j.timezone, j.anchor_at));
    r pgsched.runs;
    slot timestamptz;
    before timestamptz;
    behind timestamptz;
    intro text := '';
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'jobs');
    END IF;
    IF at IS NULL THEN
        slot := coalesce(
            CASE WHEN j.schedule IS NULL THEN j.run_at END,
            (SELECT max(k.s) FROM unnest(known) k(s) WHERE k.s <= clock_timestamp()),
            (SELECT o.scheduled_at FROM pgsched.runs o WHERE o.job_id = j.id AND o.scheduled_at <= clock_timestamp()
             ORDER BY o.job_id DESC, o.scheduled_at DESC LIMIT 1),
            known[1]);
        IF slot IS NULL THEN
            RETURN format('Job %s has no slot to tell of: %s.', j.name, coalesce(
                CASE WHEN j.error IS NOT NULL THEN format('it has been in error since %s: %s', pgsched.utc(j.error_at), j.error) END,
                pgsched.job_stands(j), 'none is decided, and none is known' || pgsched.no_leader('; ')));
        END IF;
    ELSE  -- an instant of whole seconds also stands for a slot within that second
        slot := coalesce(
            (SELECT o.scheduled_at FROM pgsched.runs o
             WHERE o.job_id = j.id AND o.scheduled_at >= at AND o.scheduled_at < pgsched.end_of(at) ORDER BY o.scheduled_at LIMIT 1),
            (SELECT min(k.s) FROM unnest(known) k(s) WHERE k.s >= at AND k.s < pgsched.end_of(at)));
        IF slot IS NULL AND (j.schedule IS NULL OR ltrim(j.schedule, E' \t') ILIKE '@after%'
                             OR at > after_at AND at < known[cardinality(known)]) THEN
            -- it is none, for all slots around it are known
            before := greatest((SELECT max(k.s) FROM unnest(known) k(s) WHERE k.s < at), (
                SELECT o.scheduled_at FROM pgsched.runs o WHERE o.job_id = j.id AND o.scheduled_at < at
                ORDER BY o.job_id DESC, o.scheduled_at DESC LIMIT 1));
            behind := least((SELECT min(k.s) FROM unnest(known) k(s) WHERE k.s > at), (
                SELECT o.scheduled_at FROM pgsched.runs o WHERE o.job_id = j.id AND o.scheduled_at > at
                ORDER BY o.job_id, o.scheduled_at LIMIT 1));
            slot := CASE WHEN behind - at < at - before OR before IS NULL THEN behind ELSE before END;
            IF slot IS NOT NULL THEN
                intro := format('%s is not a slot of %s; the nearest %s %s. ',
                    CASE WHEN date_trunc('second', at) = at THEN pgsched.utc(at)
                         ELSE to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US "UTC"') END,
                    coalesce(j.schedule || ' (' || j.timezone || ')', 'job ' || j.name),
                    CASE WHEN before IS NULL OR behind IS NULL THEN 'is' ELSE 'are' END,
                    concat_ws(' and ', pgsched.utc(before), pgsched.utc(behind)));
            END IF;
        END IF;
    END IF;
    r := pgsched.row_of_slot(j.id, coalesce(slot, at));
    RETURN format('%s%s %s of job %s: %s.', intro, CASE WHEN slot IS NULL THEN 'Time' ELSE 'Slot' END,
        pgsched.utc(coalesce(slot, at)), j.name,
        CASE WHEN r.id IS NOT NULL THEN pgsched.explain_row(j, r, coalesce(slot, at))
             ELSE pgsched.explain_rowless(j, coalesce(slot, at), slot IS NOT NULL) END);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.explain_row(j pgsched.jobs, r pgsched.runs, slot timestamp with time zone)
 RETURNS text
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    own pgsched.runs := r;
    one_row text := format('one row, that of slot %s, run %s', pgsched.utc(r.scheduled_at), r.id);
    told text;
BEGIN
    IF r.scheduled_at = slot THEN
        RETURN format('run %s: %s%s%s', r.id, pgsched.explain_run(r), pgsched.row_origin(r, slot),
            '. A calendar moved it there from ' || pgsched.utc(r.nominal_at));
    END IF;
    IF r.covers_state IS NULL THEN
        own.covers_from := NULL;
        told := pgsched.explain_run(own);
    ELSE  -- it was revived for its own slot: for the others it is what it was before
        own.state := r.covers_state;
        own.reason := r.covers_reason;
        own.origin := 'schedule';
        own.finished_at := r.created_at;
        told := CASE WHEN r.covers_state IN ('skipped', 'missed') THEN pgsched.explain_run(own)
            ELSE format('that run was for all of them, and %s%s', CASE r.covers_state WHEN 'succeeded' THEN 'succeeded'
                        WHEN 'cancelled' THEN 'was cancelled' ELSE 'failed' END,
                    CASE WHEN r.covers_state <> 'succeeded' THEN ' (' || nullif(r.covers_reason, '') || ')' END) END;
    END IF;
    told := CASE WHEN j.schedule IS NOT NULL AND slot < j.anchor_at
            THEN format('the schedule of today begins at %s; of the one before, %s have %s', pgsched.utc(j.anchor_at), pgsched.stretch(r), one_row)
            ELSE format('it lies in a stretch of %s, which has %s', pgsched.stretch(r), one_row) END
        || ': ' || told || pgsched.row_origin(own, slot);
    RETURN told || CASE WHEN r.covers_state IS NULL THEN ''
        ELSE format('. Later run %s was revived, for slot %s alone', r.id, pgsched.utc(r.scheduled_at)) END;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.explain_rowless(j pgsched.jobs, slot timestamp with time zone, is_slot boolean)
 RETURNS text
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    moment timestamptz := clock_timestamp();
    passed record;
    gone record;
    excluded text;
    used bigint;
    -- what keeps it from being decided
    paused text := CASE WHEN j.paused THEN format('the job has been paused since %s by %s%s', pgsched.utc(j.paused_at), j.paused_by,
                                                  coalesce(': ' || nullif(j.paused_reason, ''), '')) END;
    broken text := CASE WHEN j.error IS NOT NULL THEN
        format('the job has been in error since %s: %s', pgsched.utc(j.error_at), j.error) END;
BEGIN
    IF slot > moment AND j.ends_at IS NOT NULL AND slot > j.ends_at THEN
        RETURN 'it lies behind the end of the job: its ends_at is ' || pgsched.utc(j.ends_at);
    END IF;
    SELECT p.state, p.reason INTO passed FROM pgsched.passed_over p
    WHERE p.job_id = j.id AND p.after_at < slot AND p.until_at >= slot ORDER BY p.id LIMIT 1;
    IF FOUND THEN
        RETURN format('%s did not run: %s. The leader has not recorded it yet', CASE WHEN j.schedule IS NOT NULL AND slot < j.anchor_at
            THEN format('the schedule of today begins at %s; slots of the one before', pgsched.utc(j.anchor_at)) ELSE 'it' END, passed.reason);
    ELSIF j.ends_at IS NOT NULL AND slot > j.ends_at THEN
        RETURN 'it lies behind the end of the job: its ends_at is ' || pgsched.utc(j.ends_at);
    ELSIF j.schedule IS NOT NULL AND slot <= j.created_at THEN
        RETURN format('the job was created later, at %s; pgsched backfill can run earlier slots', pgsched.utc(j.created_at));
    ELSIF j.schedule IS NOT NULL AND slot < j.starts_at THEN
        RETURN format('the job starts later: its starts_at is %s', pgsched.utc(j.starts_at));
    ELSIF j.schedule IS NOT NULL AND (slot < j.anchor_at OR slot = j.anchor_at AND j.anchor_at IS DISTINCT FROM j.starts_at) THEN
        RETURN format('the schedule was edited later, at %s, and begins there', pgsched.utc(j.anchor_at));
    ELSIF slot > j.decided_until AND j.run_count >= j.max_runs THEN
        RETURN format('the job has had all its runs: its max_runs is %s', j.max_runs);
    ELSIF slot <= j.decided_until THEN
        RETURN CASE WHEN slot > moment THEN format('it is ahead of the clock, but decided: all slots until %s are: the clock has stepped back,'
                                                   ' or the mark was moved', pgsched.utc(j.decided_until))
            WHEN is_slot THEN format('it was decided, as all slots until %s are, but its row is no longer kept: history is pruned after a while,'
                                     ' or it was deleted', pgsched.utc(j.decided_until))
            ELSE format('no slot has a row there: the job has no slot at that time, or its row is no longer kept. All slots until %s are'
                        ' decided', pgsched.utc(j.decided_until)) END;
    ELSIF NOT is_slot THEN
        RETURN 'not decided yet, or no slot at that time' || coalesce('; ' || nullif(concat_ws('; and ', broken, paused), ''), '')
            || '. `pgsched explain` computes the slots of the schedule, which SQL cannot';
    END IF;
    SELECT * INTO gone FROM pgsched.leader_absences(CASE WHEN slot > moment THEN moment - interval '10 seconds' ELSE slot END,
        CASE WHEN paused IS NOT NULL AND broken IS NULL AND slot < j.paused_at THEN j.paused_at ELSE moment END);
    IF slot <= moment THEN
        IF paused IS NOT NULL AND broken IS NULL AND slot < j.paused_at THEN
            RETURN format('it was due %s before the pause, and was not decided until then%s. Now %s; on resuming it is recorded as missed,'
                ' or left to the catch-up policy with --from pause', pgsched.elapsed(j.paused_at - slot),
                CASE WHEN gone.first_at - slot <= interval '5 seconds' THEN ', because no process led '
                     ELSE '; meanwhile no process led ' END || gone.words, paused);
        ELSIF coalesce(broken, paused) IS NOT NULL THEN
            RETURN 'it is not decided, because ' || concat_ws('; and because ', broken, paused,
                nullif(pgsched.no_leader(''), ''));
        ELSIF gone.words IS NOT NULL THEN
            RETURN 'it is not decided yet' || CASE WHEN gone.first_at - slot <= interval '5 seconds' THEN ', because no process led '
                ELSE '; meanwhile no process led ' END || gone.words || pgsched.no_leader(': ');
        END IF;
        RETURN format('it has been due for %s, and the leader is about to decide it', pgsched.elapsed(moment - slot));
    END IF;
    SELECT count(*) FILTER (WHERE k.excluded IS NULL AND k.slot < explain_rowless.slot), max(k.excluded) FILTER (WHERE k.slot = explain_rowless.slot)
    INTO used, excluded FROM pgsched.known_slots(j) k;
    IF j.run_count + used >= j.max_runs THEN
        RETURN format('it lies behind the last run, unless slots before it are skipped or missed: its max_runs is %s, and %s run%s left for'
            ' the slots until then', j.max_runs, j.max_runs - j.run_count, CASE WHEN j.max_runs - j.run_count = 1 THEN ' is' ELSE 's are' END);
    END IF;
    RETURN format('it is still to come, in %s', pgsched.elapsed(slot - moment))
        || coalesce('; but ' || nullif(concat_ws('; and ', broken, paused, nullif(pgsched.no_leader(''), ''),
                                                 'it will be skipped: ' || excluded), ''), '');
END $function$;

CREATE OR REPLACE FUNCTION pgsched.explain_run(r pgsched.runs)
 RETURNS text
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    started timestamptz := pgsched.first_start(r.id, r.started_at);
    begun text := CASE WHEN started IS NULL THEN 'it never started' ELSE
        format('it started at %s, %s after the slot', pgsched.utc(started), pgsched.elapsed(started - r.scheduled_at)) END;
    error text := pgsched.last_error(r);
    attempts text := format('%s attempt%s%s', r.attempt, CASE WHEN r.attempt = 1 THEN '' ELSE 's' END, coalesce(', the last error: ' || error, ''));
    failed text := CASE WHEN r.attempt > 0 THEN format('; attempt %s of %s failed: %s', r.attempt, r.max_attempts,
                                                        coalesce(error, 'no error was recorded')) ELSE '' END;
    newer_release boolean := coalesce(starts_with(r.reason, 'waits for a worker of the newest release'), false);
    hold text := CASE WHEN r.state IN ('queued', 'waiting') THEN pgsched.holds(r) END;
    needs text := CASE WHEN r.kind = 'task' THEN 'task ' || r.task ELSE 'kind ' || r.kind END;
    since text;
    other pgsched.runs;
    live bigint;
    offering bigint;
BEGIN
    CASE r.state
    WHEN 'succeeded' THEN
        RETURN format('it ran: %s, and succeeded at %s %s', begun, pgsched.utc(r.finished_at),
                CASE WHEN r.attempt > 1 THEN 'after ' || attempts ELSE 'at the first attempt' END)
            || CASE WHEN r.origin = 'schedule' AND r.covers_state IS NULL AND r.covers_from <> r.covers_until
                    THEN '; it ran once for ' || pgsched.stretch(r) ELSE '' END;
    WHEN 'dead' THEN
        RETURN format('it failed: %s, and was given up at %s after %s%s', begun, pgsched.utc(r.finished_at), attempts,
                      ' (' || nullif(r.reason, '') || ')');
    WHEN 'cancelled' THEN
        RETURN format('it was cancelled at %s: %s', pgsched.utc(r.finished_at), coalesce(nullif(r.reason, ''), 'no reason was given'));
    WHEN 'skipped', 'missed' THEN
        SELECT * INTO other FROM pgsched.runs o
        WHERE o.id = substring(r.reason FROM '^overlap: run ([0-9]{1,18}) was not finished')::bigint
            AND o.job_id = r.job_id AND o.finished_at IS NULL;
        RETURN format('it did not run, and was recorded as %s at %s: %s%s', r.state, pgsched.utc(r.finished_at),
            coalesce(nullif(r.reason, ''), 'no reason was recorded'),
            CASE WHEN other.id IS NOT NULL THEN format('; run %s is not finished yet: %s', other.id, pgsched.explain_run(other)) END);
    WHEN 'running' THEN
        RETURN format('it has been running %s since %s (attempt %s of %s); %s',
                coalesce('on worker ' || (SELECT w.name FROM pgsched.workers w WHERE w.id = r.worker_id), 'on a worker that is no longer known'),
                pgsched.utc(r.started_at), r.attempt, r.max_attempts, begun)
            || CASE WHEN r.cancel_requested_at IS NULL THEN ''
                    ELSE format('; its worker was asked to stop it at %s: %s', pgsched.utc(r.cancel_requested_at), r.cancel_reason) END;
    WHEN 'scheduled' THEN
        RETURN CASE
            WHEN newer_release THEN format('it %s; a worker looks again at %s%s', r.reason, pgsched.utc(r.available_at), failed)
            WHEN r.reason <> '' AND r.started_at IS NOT NULL THEN
                format('it put itself off until %s: %s%s', pgsched.utc(r.available_at), r.reason, failed)
            WHEN r.attempt > 0 THEN format('it is to be tried again at %s%s', pgsched.utc(r.available_at), failed)
            WHEN r.origin <> 'schedule' OR r.available_at <= r.scheduled_at THEN format('it starts at %s', pgsched.utc(r.available_at))
            ELSE format('it starts at %s: the job''s jitter moves it by %s', pgsched.utc(r.available_at),
                        pgsched.elapsed(r.available_at - r.scheduled_at)) END;
    WHEN 'waiting' THEN
        RETURN CASE
            WHEN r.ready_at IS NOT NULL THEN
                format('it waits for its limits since %s: %s', pgsched.utc(r.ready_at), coalesce(hold, 'the leader to release it'))
            WHEN r.available_at >= '8998-01-01 00:00Z' THEN
                'it is to run after others: it waits for ' || coalesce(pgsched.waited_for(r), 'the leader to release it')
            ELSE format('%s: it waits for %s%s', CASE WHEN r.reason = 'catch_up: late, and one after the other'
                    THEN 'late slots are caught up one after the other' ELSE 'its overlap policy holds it back' END,
                coalesce(pgsched.waited_for(r), 'the leader to release it'),
                ', until ' || pgsched.utc(r.held_until) || ' at the latest') END;
    ELSE
        since := format('it has been queued since %s on queue %s%s', pgsched.utc(r.available_at), r.queue,
                        CASE WHEN r.attempt > 0 THEN ', to be tried again after ' || attempts ELSE '' END);
        IF hold IS NOT NULL THEN
            RETURN format('%s, and does not start: %s', since, hold);
        ELSIF newer_release THEN
            RETURN format('%s; it %s', since, r.reason);
        END IF;
        SELECT count(*), count(*) FILTER (WHERE (w.queues IS NULL OR r.queue = ANY (w.queues)) AND r.kind = ANY (w.kinds)
                                          AND (r.kind <> 'task' OR r.task = ANY (w.tasks)))
        INTO live, offering FROM pgsched.workers w
        WHERE w.stopped_at IS NULL AND w.stopping_at IS NULL AND w.seen_at > clock_timestamp() - w.lease;
        RETURN since || CASE
            WHEN live = 0 THEN ', and there is no live worker'
            WHEN offering = 0 THEN format(', and %s %s there%s', CASE WHEN live = 1 THEN 'the one live worker does not offer'
                    ELSE format('none of %s live workers offers', live) END, needs,
                CASE WHEN r.kind = 'task' THEN pgsched.did_you_mean(r.task, pgsched.offered_tasks()) ELSE '' END)
            ELSE format(', and waits for %s %s to be free', CASE WHEN offering = 1 THEN 'the one worker that offers'
                    ELSE format('one of %s workers that offer', offering) END, needs) END;
    END CASE;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.file_entries_object()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF NEW.what = 'job' THEN
        NEW.object_id := (SELECT j.id FROM pgsched.jobs j WHERE j.name = NEW.name);
    ELSIF NEW.what = 'calendar' THEN
        NEW.object_id := (SELECT c.id FROM pgsched.calendars c WHERE c.name = NEW.name);
    END IF;
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.file_entries_of_jobs()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    DELETE FROM pgsched.file_entries d USING gone g, pgsched.file_entries e
    WHERE e.what = 'job' AND e.name = g.name AND e.object_id = g.id AND d.what = 'done' AND (d.owner, d.name) = (e.owner, e.name)
        AND g.delete_after_run AND g.schedule IS NULL AND g.next_run_at IS NULL;
    UPDATE pgsched.file_entries e SET what = 'done' FROM gone g
    WHERE e.what = 'job' AND e.name = g.name AND e.object_id = g.id
        AND g.delete_after_run AND g.schedule IS NULL AND g.next_run_at IS NULL;
    DELETE FROM pgsched.file_entries e USING gone g
    WHERE e.what = 'job' AND e.name = g.name AND e.object_id = g.id;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.file_entries_of_others()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    DELETE FROM pgsched.file_entries e USING (SELECT to_jsonb(o) AS row FROM gone o) g
    WHERE e.what = TG_ARGV[0] AND (e.object_id IS NULL OR e.object_id = (g.row ->> 'id')::bigint)
        AND e.name = CASE TG_ARGV[0] WHEN 'pause' THEN concat_ws(' ', g.row ->> 'what', nullif(g.row ->> 'name', ''))
                     ELSE g.row ->> 'name' END;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.file_entries_renamed()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    DELETE FROM pgsched.file_entries
    WHERE what = TG_ARGV[0] AND name = NEW.name AND object_id IS DISTINCT FROM NEW.id;  -- its object is gone
    UPDATE pgsched.file_entries SET name = NEW.name
    WHERE what = TG_ARGV[0] AND name = OLD.name AND object_id = NEW.id;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.first_result(idempotency_key text)
 RETURNS TABLE(run_id bigint, state text, result jsonb, error text, finished_at timestamp with time zone)
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT k.run_id, coalesce(r.state, k.state), CASE WHEN r.id IS NULL THEN k.result ELSE r.result END,
        CASE WHEN r.id IS NULL THEN k.error ELSE r.error END, coalesce(r.finished_at, k.finished_at)
    FROM pgsched.kept_keys k LEFT JOIN pgsched.runs r ON r.id = k.run_id
    WHERE k.scope = 'idempotency' AND k.key = first_result.idempotency_key AND k.expires_at > clock_timestamp()
$function$;

CREATE OR REPLACE FUNCTION pgsched.first_start(run_id bigint, started_at timestamp with time zone)
 RETURNS timestamp with time zone
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT least(started_at, (SELECT min(a.started_at) FROM pgsched.attempts a WHERE a.run_id = $1))
$function$;

CREATE OR REPLACE FUNCTION pgsched.forget_gates()
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    LOCK TABLE pgsched.queues IN SHARE MODE NOWAIT;
    PERFORM setval('pgsched.gated_queues', (SELECT coalesce(bit_or(pgsched.queue_bit(name)), 0) FROM pgsched.queues));
EXCEPTION WHEN lock_not_available THEN
    NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.forget_names(owner name)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    unused text[] := ARRAY(
        SELECT k.name FROM pgsched.locks k
        WHERE k.owner = forget_names.owner AND k.used_at < clock_timestamp() - interval '1 hour'
          AND NOT EXISTS (SELECT FROM pgsched.lock_places p WHERE p.lock = k.name)
        LIMIT 1000 FOR UPDATE SKIP LOCKED);
BEGIN
    -- somebody may have got in line before the rows were locked
    DELETE FROM pgsched.locks k WHERE k.name = ANY (unused) AND NOT EXISTS (SELECT FROM pgsched.lock_places p WHERE p.lock = k.name);
    RETURN FOUND;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.forget_places(name text)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    DELETE FROM pgsched.lock_places q WHERE q.token = ANY (ARRAY(
        SELECT p.token FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
        WHERE p.lock = forget_places.name AND p.fence IS NULL
          AND (p.give_up_at <= clock_timestamp() OR s.ended_at IS NOT NULL OR s.lease_until <= clock_timestamp())
        ORDER BY p.place LIMIT 1000 FOR UPDATE OF p SKIP LOCKED));
    RETURN FOUND;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.forget_slots(job_id bigint)
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    DELETE FROM pgsched.next_slots n
    WHERE n.job_id = forget_slots.job_id AND NOT EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = n.job_id);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.grant_names(prefix text, role name)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM pgsched.refuse_others(format('prefix "%s"', left(prefix, 200)), NULL);
    IF prefix IS NULL OR length(prefix) NOT BETWEEN 1 AND 200 THEN
        PERFORM pgsched.raise_bad_value('prefix: expected 1 to 200 characters', 'name_grants');
    ELSIF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
        PERFORM pgsched.raise_bad_value(format('role: there is no role "%s"%s', role,
            pgsched.did_you_mean(role, ARRAY(SELECT r.rolname::text FROM pg_roles r))), 'name_grants');
    END IF;
    INSERT INTO pgsched.name_grants VALUES (grant_names.prefix, grant_names.role) ON CONFLICT DO NOTHING;
    PERFORM pgsched.note('granted', 'names', grant_names.prefix, jsonb_build_object('role', grant_names.role));
END $function$;

CREATE OR REPLACE FUNCTION pgsched.has_options(task text)
 RETURNS boolean
 LANGUAGE sql
AS $function$
    SELECT (pg_catalog.pg_sequence_last_value('pgsched.tasks_with_options'::regclass)
        >> pg_catalog.mod(pg_catalog.hashtext(task) & 2147483647, 61)) & 1::bigint IS NOT DISTINCT FROM 1::bigint
$function$;

CREATE OR REPLACE FUNCTION pgsched.has_room(what text, owner name, number bigint, most bigint)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    counted bigint;
BEGIN
    IF number <= (SELECT r.room_until FROM pgsched.role_room r WHERE r.what = has_room.what AND r.owner = has_room.owner
                  ORDER BY r.counted_at DESC LIMIT 1) THEN
        RETURN true;
    END IF;
    counted := pgsched.rows_of_role(what, owner, most);
    IF counted > most THEN
        RETURN false;
    END IF;
    IF current_setting('transaction_isolation') = 'read committed' THEN  -- an older snapshot counts too few
        DELETE FROM pgsched.role_room r WHERE (r.what, r.owner, r.counted_at) IN (
            SELECT o.what, o.owner, o.counted_at FROM pgsched.role_room o
            WHERE o.what = has_room.what AND o.owner = has_room.owner FOR UPDATE SKIP LOCKED);
        INSERT INTO pgsched.role_room (what, owner, counted_at, room_until)
        VALUES (has_room.what, has_room.owner, number, number + greatest(most - counted, most / 100)) ON CONFLICT DO NOTHING;
    END IF;
    RETURN true;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.held_options(j pgsched.jobs, starts_at timestamp with time zone, overlap boolean)
 RETURNS jsonb
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT coalesce(pgsched.job_options(j), '{}') || jsonb_build_object('after_jobs', j.after_jobs)
        || CASE WHEN j.after_match <> 'same' THEN jsonb_build_object('after_match', j.after_match) ELSE '{}' END
        || CASE WHEN starts_at > clock_timestamp() THEN jsonb_build_object('not_before', starts_at) ELSE '{}' END
        || CASE WHEN overlap THEN '{"overlap": true}'::jsonb ELSE '{}' END
$function$;

CREATE OR REPLACE FUNCTION pgsched.hinted_days(word text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN word = ANY ('{weekday,weekdays}') THEN '1-5'
        WHEN word = ANY ('{weekend,weekends}') THEN '0,6'
        WHEN word = 'tues' THEN '2'
        WHEN word = 'thurs' THEN '4'
        ELSE (SELECT (d.n - 1)::text FROM unnest('{sunday,monday,tuesday,wednesday,thursday,friday,saturday}'::text[])
              WITH ORDINALITY d(name, n) WHERE word IN (d.name, d.name || 's', left(d.name, 3)))
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.hinted_interval(unit text, count integer)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN unit = 'minute' AND count = 1 THEN '* * * * *'
        WHEN unit = 'hour' AND count = 1 THEN '0 * * * *'
        WHEN unit = 'minute' AND 60 % nullif(count, 0) = 0 AND count < 60 THEN format('*/%s * * * *', count)
        WHEN unit = 'hour' AND 24 % nullif(count, 0) = 0 AND count < 24 THEN format('0 */%s * * *', count)
        ELSE format('@every %s%s', count, left(unit, 1))
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.hinted_schedule(words text[])
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    word text;
    part text[];
    number integer;  -- may be an hour, or the count of the next unit
    hour integer;
    minute integer;
    half text;
    hours integer[] := '{}';
    minutes integer[] := '{}';
    unit text;
    count integer;
    days text[] := '{}';
    dates text[] := '{}';
    clock text;
BEGIN
    -- the last word is none: it takes the number that is left over
    FOR word IN SELECT lower(w.typed COLLATE "C") FROM (
                    SELECT u.typed, u.n FROM unnest(words) WITH ORDINALITY u(typed, n) UNION ALL SELECT '', NULL) w
                ORDER BY w.n NULLS LAST LOOP
        half := NULL;
        hour := NULL;
        CONTINUE WHEN word = ANY ('{a,an,and,at,each,every,in,of,on,o''clock,run,runs,the}');
        IF pgsched.hinted_unit(word) IS NOT NULL THEN
            CONTINUE WHEN cardinality(dates) > 0 AND pgsched.hinted_unit(word) = 'day' AND number IS NULL;
            IF unit IS NOT NULL OR number = 0 THEN
                RETURN NULL;
            END IF;
            unit := pgsched.hinted_unit(word);
            count := number;
            number := NULL;
            CONTINUE;
        END IF;
        IF number IS NOT NULL THEN
            hour := number;
            minute := 0;
            number := NULL;
            IF word IN ('am', 'pm') THEN
                half := word;
            ELSIF hour > 23 THEN
                RETURN NULL;
            ELSE
                hours := hours || hour;
                minutes := minutes || 0;
                hour := NULL;
            END IF;
        END IF;
        IF half IS NOT NULL OR word = '' THEN
            NULL;
        ELSIF pgsched.hinted_days(word) IS NOT NULL THEN
            days := days || pgsched.hinted_days(word);
        ELSIF word IN ('noon', 'midnight') THEN
            hour := CASE word WHEN 'noon' THEN 12 ELSE 0 END;
            minute := 0;
        ELSIF word IN ('first', 'last') THEN
            dates := dates || CASE word WHEN 'first' THEN '1' ELSE 'L' END;
        ELSIF word ~ '^[0-9]{1,2}(st|nd|rd|th)$' THEN
            dates := dates || left(word, -2)::integer::text;
            IF left(word, -2)::integer NOT BETWEEN 1 AND 31 THEN
                RETURN NULL;
            END IF;
        ELSIF word ~ '^[0-9]{1,3}$' THEN
            number := word;
        ELSE
            part := regexp_match(word, '^([0-9]{1,2})(:([0-9]{2}))?(am|pm)?$');
            IF part IS NULL THEN
                RETURN NULL;
            END IF;
            hour := part[1];
            minute := coalesce(part[3], '0');
            half := part[4];
        END IF;
        IF half IS NOT NULL THEN
            IF hour NOT BETWEEN 1 AND 12 THEN
                RETURN NULL;
            END IF;
            hour := hour % 12 + CASE half WHEN 'pm' THEN 12 ELSE 0 END;
        END IF;
        IF hour IS NOT NULL THEN
            IF hour > 23 OR minute > 59 THEN
                RETURN NULL;
            END IF;
            hours := hours || hour;
            minutes := minutes || minute;
        END IF;
    END LOOP;
    IF (SELECT count(DISTINCT m) FROM unnest(minutes) m) > 1 THEN
        RETURN NULL;
    END IF;
    clock := CASE WHEN cardinality(hours) = 0 THEN '0 0' ELSE format('%s %s', minutes[1],
        (SELECT string_agg(h::text, ',' ORDER BY h) FROM (SELECT DISTINCT h FROM unnest(hours) h) d)) END;
    IF cardinality(dates) > 0 OR unit = 'month' THEN
        RETURN CASE WHEN cardinality(days) = 0 AND count IS NULL AND coalesce(unit, 'month') = 'month'
            THEN format('%s %s * *', clock, coalesce(nullif(array_to_string(dates, ','), ''), '1')) END;
    ELSIF cardinality(days) > 0 OR unit = 'week' THEN
        RETURN CASE WHEN count IS NULL AND coalesce(unit, 'week') = 'week'
            THEN format('%s * * %s', clock, coalesce(nullif(array_to_string(days, ','), ''), '0')) END;
    ELSIF unit IS NULL OR unit = 'day' AND coalesce(count, 1) = 1 THEN
        RETURN CASE WHEN cardinality(hours) > 0 OR unit IS NOT NULL THEN clock || ' * * *' END;
    END IF;
    RETURN CASE WHEN cardinality(hours) = 0 THEN pgsched.hinted_interval(unit, coalesce(count, 1)) END;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.hinted_unit(word text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN word = ANY ('{s,sec,secs,second,seconds}') THEN 'second'
        WHEN word = ANY ('{m,min,mins,minute,minutes}') THEN 'minute'
        WHEN word = ANY ('{h,hr,hrs,hour,hours,hourly}') THEN 'hour'
        WHEN word = ANY ('{d,day,days,daily,everyday}') THEN 'day'
        WHEN word = ANY ('{week,weeks,weekly}') THEN 'week'
        WHEN word = ANY ('{month,months,monthly}') THEN 'month'
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.hold_back(run_id bigint, after bigint[], after_any bigint[], on_failure text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    problem text := pgsched.not_one_of('on_failure', on_failure, ARRAY['cancel', 'run_anyway', 'wait']);
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'dependencies');
    END IF;
    INSERT INTO pgsched.dependencies (run_id, parent_id, on_failure, any_of)
    SELECT hold_back.run_id, p.id, hold_back.on_failure, bool_and(p.any_of) FROM (
        SELECT unnest(after) AS id, false AS any_of UNION ALL SELECT unnest(after_any), true) p
    WHERE p.id IS NOT NULL GROUP BY p.id;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.hold_run(run_id bigint)
 RETURNS TABLE(id bigint, state text, unique_key text)
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT r.id, r.state, r.unique_key FROM pgsched.runs r
    WHERE r.id = $1 AND pgsched.may_change(r.owner) FOR NO KEY UPDATE SKIP LOCKED
$function$;

CREATE OR REPLACE FUNCTION pgsched.holds(r pgsched.runs)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT string_agg(h.words, '; ' ORDER BY h.place, h.words) FROM (
        SELECT 1 AS place, format('%s is paused by %s%s', CASE WHEN p.what = 'all' THEN 'everything' ELSE p.what || ' ' || p.name END,
                                  p.paused_by, coalesce(': ' || nullif(p.reason, ''), '')) AS words
        FROM pgsched.pauses p
        WHERE (p.what, p.name) IN (('all', ''), ('queue', r.queue), ('task', r.task), ('limit', r.queue))
            AND coalesce(p.resume_at > clock_timestamp(), true)
        UNION ALL
        SELECT 2, format('limit %s: %s%s', l.name, CASE WHEN l.ordered THEN 'in order, ' ELSE '' END, concat_ws(' and ',
            format(l.concurrency || ' of key %s at once', r.concurrency_key),
            format(l.rate || ' starts in ' || pgsched.elapsed(make_interval(secs => l.period_s)) || ' of key %s', r.concurrency_key)))
        FROM pgsched.limit_of(r.concurrency_key) l
        WHERE r.ready_at IS NOT NULL AND r.state = 'waiting' AND (l.concurrency IS NOT NULL OR l.rate IS NOT NULL)
        UNION ALL
        SELECT 3, format('queue %s: %s', q.name, concat_ws(' and ', q.concurrency_limit || ' at once',
            q.rate || ' starts in ' || pgsched.elapsed(q.rate_period), CASE WHEN q.fair THEN 'keys take turns' END))
        FROM pgsched.queues q
        WHERE q.name = r.queue AND r.ready_at IS NOT NULL AND r.state = 'waiting'
            AND (q.concurrency_limit IS NOT NULL OR q.rate IS NOT NULL OR q.fair)
    ) h
$function$;

CREATE OR REPLACE FUNCTION pgsched.http_args_error(args jsonb)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    known text[] := ARRAY['method', 'headers', 'params', 'json', 'body', 'expect', 'connect_timeout_s',
                          'read_timeout_s', 'follow_redirects'];
    found record;
    problem text;
BEGIN
    IF args = '[]' THEN
        RETURN NULL;
    ELSIF jsonb_typeof(args) <> 'object' THEN
        RETURN 'args: a http job takes a JSON object';
    END IF;
    FOR found IN SELECT * FROM jsonb_each(args) LOOP
        IF found.key <> ALL (known) THEN
            RETURN format('args.%s: no such key; known are %s', left(found.key, 60), array_to_string(known, ', '));
        END IF;
        problem := pgsched.http_value_error(found.key, found.value);
        IF problem IS NOT NULL THEN
            RETURN 'args.' || found.key || problem;
        END IF;
    END LOOP;
    IF args ? 'headers' THEN
        SELECT e INTO problem FROM jsonb_each(args -> 'headers') h, pgsched.http_header_error(h.key, h.value) e
        WHERE e IS NOT NULL LIMIT 1;
    END IF;
    RETURN coalesce(problem, CASE WHEN args ?& '{json,body}' THEN 'args.body: not together with json' END);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.http_header_error(name text, value jsonb)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET standard_conforming_strings TO 'on'
AS $function$
    SELECT CASE
        WHEN name !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]{1,100}$' THEN
            format('args.headers: %s is not the name of a header', to_json(left(name, 60)))
        WHEN lower(name) IN ('accept-encoding', 'connection', 'content-length', 'expect', 'host', 'idempotency-key',
                             'keep-alive', 'te', 'trailer', 'transfer-encoding', 'upgrade')
             OR lower(name) ~ '^(x-pgsched-|proxy-)' THEN format('args.headers: %s is set by pgsched itself', name)
        WHEN jsonb_typeof(value) <> 'string' THEN format('args.headers.%s: expected text', name)
        WHEN length(value #>> '{}') > 8192 THEN
            format('args.headers.%s: %s characters, at most 8192 are allowed', name, length(value #>> '{}'))
        WHEN value #>> '{}' !~ '^[\x20-\x7e]*$' OR value #>> '{}' <> btrim(value #>> '{}') THEN
            format('args.headers.%s: must be printable ASCII and not begin or end with a space', name)
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.http_url_error(url text)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET standard_conforming_strings TO 'on'
AS $function$
DECLARE
    authority text := substring(url FROM '(?i)^https?://([^/?#]*)');
    port text := substring(authority FROM ':([0-9]{1,5})$');
BEGIN
    RETURN CASE
        WHEN length(url) > 8192 THEN
            format('task: %s characters, at most 8192 are allowed in a URL', length(url))
        WHEN url ~ '[\x01-\x20\x7f]' THEN 'task: a URL must not contain spaces or control characters'
        WHEN authority IS NULL THEN 'task: a URL must begin with http:// or https://'
        WHEN strpos(authority, '@') > 0 THEN
            'task: a URL must not contain a user name or password; args.headers may hold Authorization'
        WHEN authority !~ '^(\[[0-9A-Fa-f:.]+\]|[^]:\\%<>"''`{|}^[]+)(:[0-9]{1,5})?$' THEN
            'task: the URL has no valid host'
        WHEN port::integer NOT BETWEEN 1 AND 65535 THEN format('task: port %s is out of range 1-65535', port)
    END;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.http_value_error(key text, value jsonb)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    kind text := jsonb_typeof(value);
    most integer := CASE key WHEN 'connect_timeout_s' THEN 600 WHEN 'read_timeout_s' THEN 86400 END;
    plain text := value #>> '{}';
BEGIN
    IF key = 'method' AND (kind <> 'string' OR plain !~ '^[A-Za-z]{1,20}$' OR upper(plain) IN ('CONNECT', 'TRACE')) THEN
        RETURN ': expected a method such as POST';
    ELSIF key = 'headers' AND kind <> 'object' THEN
        RETURN ': expected an object of text';
    ELSIF key = 'params' AND kind <> 'object' THEN
        RETURN ': expected an object';
    ELSIF key = 'params' THEN
        RETURN (SELECT format('.%s: expected text, a number, true or false, or an array of these', p.name)
                FROM jsonb_each(value) p(name, item), jsonb_array_elements(
                    CASE jsonb_typeof(item) WHEN 'array' THEN item ELSE jsonb_build_array(item) END) one
                WHERE jsonb_typeof(one) NOT IN ('string', 'number', 'boolean') LIMIT 1);
    ELSIF key = 'body' AND kind <> 'string' THEN
        RETURN ': expected text';
    ELSIF key = 'expect' AND (kind <> 'array' OR value = '[]') THEN
        RETURN ': expected an array of statuses';
    ELSIF key = 'expect' THEN
        RETURN (SELECT format(': %s is neither a status 200-599 nor a class such as "2xx"', left(e.item::text, 60))
                FROM jsonb_array_elements(value) e(item)
                WHERE NOT (jsonb_typeof(item) = 'number' AND item::text ~ '^[2-5][0-9][0-9]$'
                           OR jsonb_typeof(item) = 'string' AND item #>> '{}' ~ '^[2-5]xx$') LIMIT 1);
    ELSIF key = 'follow_redirects' AND kind <> 'boolean' THEN
        RETURN ': expected true or false';
    ELSIF most IS NOT NULL THEN
        IF kind <> 'number' OR plain::numeric NOT BETWEEN 0.001 AND most THEN
            RETURN format(': expected a number of seconds, 0.001-%s', most);
        END IF;
    END IF;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.include_dates(job text, first_date date, last_date date)
 RETURNS TABLE(from_date date, until_date date, reason text)
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
$function$;

CREATE OR REPLACE FUNCTION pgsched.is_barrier(state jsonb)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN jsonb_typeof(state -> 'open') = 'boolean' AND jsonb_typeof(state -> 'round') = 'number'
            AND jsonb_typeof(state -> 'size') = 'number'
        THEN (state -> 'round')::numeric BETWEEN 1 AND 9223372036854775807 AND (state -> 'size')::numeric BETWEEN 1 AND 10000
        ELSE false END
$function$;

CREATE OR REPLACE FUNCTION pgsched.is_limited(queue text, concurrency_key text)
 RETURNS boolean
 LANGUAGE sql
 STABLE
AS $function$
    SELECT $2 IS NOT NULL OR EXISTS (SELECT FROM pgsched.queues q WHERE q.name = $1 AND q.limited)
$function$;

CREATE OR REPLACE FUNCTION pgsched.is_own_key(concurrency_key text, task text)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE
AS $function$
    SELECT concurrency_key IS NULL OR concurrency_key !~ '^task(:|$)'
        OR pg_catalog.starts_with(concurrency_key || ':', 'task:' || task || ':')
$function$;

CREATE OR REPLACE FUNCTION pgsched.is_plain(task text, args jsonb, queue text, priority smallint, max_attempts integer, run_timeout interval)
 RETURNS boolean
 LANGUAGE sql
AS $function$
    SELECT CASE WHEN pg_catalog.btrim(task) <> '' AND pg_catalog.length(task) <= 65536
        AND pg_catalog.jsonb_typeof(args) = 'object' AND pg_catalog.pg_column_size(args) <= 1048576
        AND (pg_catalog.pg_column_size(args) <= 1600 AND pg_catalog.pg_column_compression(args) IS NULL
             OR NOT pg_catalog.jsonb_path_exists(args, 'strict $.**{201}'))
        AND (queue = 'default' OR queue ~ '^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,99}$')
        AND priority BETWEEN 0 AND 9 AND max_attempts BETWEEN 1 AND 1000
        AND (run_timeout IS NULL OR run_timeout BETWEEN '1 millisecond' AND '10 years')
        AND (pg_catalog.pg_sequence_last_value('pgsched.gated_queues'::regclass)
            >> pg_catalog.mod(pg_catalog.hashtext(queue) & 2147483647, 61)) & 1::bigint IS DISTINCT FROM 1::bigint
        THEN true END
$function$;

CREATE OR REPLACE FUNCTION pgsched.is_unclaimed(state text, attempt integer, token uuid, suspect boolean, reruns integer)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE
AS $function$
    SELECT state IN ('queued', 'scheduled', 'waiting') AND attempt = 0 AND token IS NULL AND suspect IS NOT TRUE
        AND reruns IS NULL
$function$;

CREATE OR REPLACE FUNCTION pgsched.item_bury(i pgsched.items, why text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.item_consume(id bigint, token uuid, session uuid DEFAULT NULL::uuid)
 RETURNS boolean
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT id = ANY (pgsched.item_consume_many(ARRAY[id], ARRAY[token], session))
$function$;

CREATE OR REPLACE FUNCTION pgsched.item_consume_many(ids bigint[], tokens uuid[], session uuid DEFAULT NULL::uuid)
 RETURNS bigint[]
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.item_counts(name text, OUT ready bigint, OUT later bigint, OUT taken bigint)
 RETURNS record
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.item_end_own_sessions(sessions bigint[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    one bigint;
BEGIN
    FOREACH one IN ARRAY sessions LOOP
        PERFORM pgsched.session_drop(one);
        DELETE FROM pgsched.item_consumers c WHERE c.session = one AND NOT EXISTS (SELECT FROM pgsched.sessions s WHERE s.id = one);
    END LOOP;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.item_end_session(session bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.item_extend(id bigint, token uuid)
 RETURNS timestamp with time zone
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT r.lease_until FROM pgsched.items i JOIN pgsched.sessions s ON s.id = i.session AND s.owner = pgsched.caller()
    CROSS JOIN LATERAL pgsched.session_renew(s.token) r
    WHERE i.id = item_extend.id AND i.token = item_extend.token
$function$;

CREATE OR REPLACE FUNCTION pgsched.item_get(name text, token uuid, session uuid DEFAULT NULL::uuid, hold interval DEFAULT '00:00:30'::interval, most integer DEFAULT 1, max_attempts integer DEFAULT 0, wait boolean DEFAULT false)
 RETURNS TABLE(id bigint, value jsonb, priority smallint, attempt integer, put_at timestamp with time zone, look_at timestamp with time zone)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.item_give_back(id bigint, token uuid, delay interval DEFAULT '00:00:00'::interval, error text DEFAULT NULL::text)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.item_leave(name text, token uuid, session uuid)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.item_look(queue bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.item_look_at(queue bigint, session bigint)
 RETURNS timestamp with time zone
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_sort TO 'off'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.item_put(name text, item jsonb, priority integer DEFAULT 100, delay interval DEFAULT '00:00:00'::interval)
 RETURNS bigint
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT (pgsched.item_put_many(name, ARRAY[item], priority, delay))[1]
$function$;

CREATE OR REPLACE FUNCTION pgsched.item_put_many(name text, items jsonb[], priority integer DEFAULT 100, delay interval DEFAULT '00:00:00'::interval)
 RETURNS bigint[]
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_sort TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.item_queue_of(name text, caller name)
 RETURNS pgsched.item_queues
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.item_revive(r pgsched.runs)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    q pgsched.item_queues := pgsched.item_queue_of(r.task, pgsched.caller());
BEGIN
    INSERT INTO pgsched.items (queue, value, priority, put_at, available_at)
    VALUES (q.id, r.args -> 'value', (r.args ->> 'priority')::smallint, clock_timestamp(), clock_timestamp());
    DELETE FROM pgsched.attempts a WHERE a.run_id = r.id;
    DELETE FROM pgsched.runs o WHERE o.id = r.id;
    PERFORM pgsched.item_tell(q.id, 1);
    RETURN 'queued';
END $function$;

CREATE OR REPLACE FUNCTION pgsched.item_take(queue bigint, session bigint, token uuid, most integer, max_attempts integer)
 RETURNS SETOF pgsched.items
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_sort TO 'off'
 SET enable_bitmapscan TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.item_take_back(queue bigint, session bigint, why text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.item_tell(queue bigint, most integer)
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    WITH waiting AS (
        SELECT c.session, c.waiting_since FROM pgsched.item_consumers c
        WHERE c.queue = item_tell.queue AND c.waiting_since IS NOT NULL ORDER BY c.waiting_since LIMIT 100)
    SELECT pgsched.notify('pgsched_session_' || told.session, '') FROM (
        (SELECT w.session FROM waiting w WHERE pgsched.session_lives(w.session) ORDER BY w.waiting_since LIMIT least(most, 20))
        UNION
        (SELECT r.session FROM (SELECT w.session FROM waiting w ORDER BY random() LIMIT 1) r WHERE pgsched.session_lives(r.session))) told
$function$;

CREATE OR REPLACE FUNCTION pgsched.item_tell_of_rest(queue bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
BEGIN
    IF EXISTS (SELECT FROM pgsched.items i WHERE i.queue = item_tell_of_rest.queue AND i.session IS NULL) THEN
        PERFORM pgsched.item_tell(queue, 1);
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.item_value_error(value jsonb)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN value IS NULL THEN 'item: must not be null'
        WHEN pg_column_size(value) > 1048576 THEN format('item: %s bytes, at most 1048576 are allowed', pg_column_size(value))
        WHEN jsonb_path_exists(value, 'strict $.**{201}') THEN 'item: nested more than 200 deep' END
$function$;

CREATE OR REPLACE FUNCTION pgsched.job_calendars_after()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    UPDATE pgsched.jobs j SET next_run_at = clock_timestamp()
    WHERE j.id IN (OLD.job_id, NEW.job_id) AND (j.schedule IS NOT NULL OR j.on_excluded <> 'skip')
        AND (j.next_run_at > clock_timestamp() OR pgsched.may_go_on(j));
    PERFORM pgsched.notify('pgsched_leader', 'jobs');
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.job_calendars_before()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    problem text;
BEGIN
    NEW.until_date := coalesce(NEW.until_date, NEW.from_date);
    problem := pgsched.calendar_error(NEW);
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'job_calendars');
    END IF;
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.job_calendars_most()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    most constant integer := 5000;
BEGIN
    IF EXISTS (SELECT FROM (SELECT DISTINCT job_id FROM added) a WHERE (SELECT count(*) FROM (
            SELECT FROM pgsched.job_calendars c WHERE c.job_id = a.job_id LIMIT most + 1) found) > most) THEN
        PERFORM pgsched.raise_bad_value(
            format('from_date: a job has at most %s stretches of excluded dates', most), 'job_calendars');
    END IF;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.job_error(j pgsched.jobs)
 RETURNS text
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    -- without a subquery: so the functions are prepared once for all jobs of a transaction
    problem text := coalesce(
        pgsched.bad_text('name', j.name, 200),
        pgsched.not_one_of('kind', j.kind, ARRAY['task', 'command', 'shell', 'sql', 'http']),
        CASE WHEN j.task IS NULL OR btrim(j.task) = '' THEN 'task: must not be empty'
             WHEN length(j.task) > 65536 THEN
                 format('task: %s characters, at most 65536 are allowed', length(j.task)) END,
        CASE WHEN j.kind = 'task' THEN pgsched.bad_text('task', j.task, 200) END,
        CASE WHEN j.kind = 'http' THEN pgsched.http_url_error(j.task) END,
        pgsched.args_error(j.kind, j.args),
        CASE WHEN strpos(j.task, '{slot:') > 0 OR strpos(j.args::text, '{slot:') > 0 THEN
            pgsched.slot_token_error(j.kind, j.task, j.args) END,
        CASE WHEN j.queue IS NOT NULL THEN pgsched.bad_text('queue', j.queue, 100) END,
        CASE WHEN j.priority IS NOT NULL THEN pgsched.out_of_range('priority', j.priority, 0, 9) END,
        CASE WHEN j.timezone IS DISTINCT FROM 'UTC' THEN pgsched.timezone_error(j.timezone) END,
        CASE WHEN j.schedule IS NOT NULL THEN pgsched.schedule_error(j.schedule) END,
        CASE WHEN j.schedule IS NOT NULL AND j.run_at IS NOT NULL THEN
            'run_at: a job has either a schedule or run_at, not both' END,
        CASE WHEN j.run_at IS NOT NULL THEN pgsched.bad_instant('run_at', j.run_at) END,
        CASE WHEN j.starts_at IS NOT NULL THEN pgsched.bad_instant('starts_at', j.starts_at) END,
        CASE WHEN j.ends_at IS NOT NULL THEN pgsched.bad_instant('ends_at', j.ends_at) END,
        CASE WHEN j.ends_at <= j.starts_at THEN 'ends_at: must be later than starts_at' END,
        CASE WHEN j.schedule IS NULL AND (coalesce(j.run_at, now()) < j.starts_at
                                          OR coalesce(j.run_at, now()) > j.ends_at) THEN
            'run_at: must lie between starts_at and ends_at' END,
        CASE WHEN j.max_runs < 1 THEN format('max_runs: %s is less than 1', j.max_runs) END,
        CASE WHEN j.jitter IS DISTINCT FROM '0' THEN pgsched.bad_period('jitter', j.jitter) END,
        CASE WHEN j.overlap IS DISTINCT FROM 'skip' THEN pgsched.not_one_of('overlap', j.overlap,
            ARRAY['allow', 'skip', 'buffer_one', 'buffer_all', 'replace', 'terminate']) END,
        CASE WHEN j.max_buffer IS DISTINCT FROM 100 THEN pgsched.out_of_range('max_buffer', j.max_buffer, 1, 100000) END,
        CASE WHEN j.retry_within IS NOT NULL THEN pgsched.bad_interval('retry_within', j.retry_within, '0') END,
        CASE WHEN j.retry_within IS NOT NULL AND j.overlap <> 'skip' THEN
            format('retry_within: is for overlap "skip" alone, not "%s"', j.overlap) END,
        CASE WHEN j.misfire_after IS DISTINCT FROM '60 seconds' THEN pgsched.bad_period('misfire_after', j.misfire_after) END,
        CASE WHEN j.catch_up IS DISTINCT FROM 'latest' THEN
            pgsched.not_one_of('catch_up', j.catch_up, ARRAY['latest', 'skip', 'earliest', 'all']) END,
        CASE WHEN j.max_catch_up IS DISTINCT FROM 100 THEN pgsched.out_of_range('max_catch_up', j.max_catch_up, 1, 10000) END,
        CASE WHEN j.catch_up_window IS DISTINCT FROM '1 day' THEN pgsched.bad_period('catch_up_window', j.catch_up_window) END,
        CASE WHEN j.start_deadline IS NOT NULL THEN pgsched.bad_interval('start_deadline', j.start_deadline, '1 second') END,
        CASE WHEN j.start_deadline <= j.jitter THEN 'start_deadline: must be longer than jitter' END,
        CASE WHEN j.max_attempts IS NOT NULL THEN pgsched.out_of_range('max_attempts', j.max_attempts, 1, 1000) END,
        CASE WHEN j.timeout IS NOT NULL THEN pgsched.bad_interval('timeout', j.timeout, '1 millisecond') END,
        CASE WHEN j.kill_after IS NOT NULL THEN pgsched.bad_interval('kill_after', j.kill_after, '0') END,
        CASE WHEN j.backoff IS NOT NULL THEN
            pgsched.not_one_of('backoff', j.backoff, ARRAY['exponential', 'fixed', 'linear']) END,
        CASE WHEN j.backoff_base IS NOT NULL THEN pgsched.bad_interval('backoff_base', j.backoff_base, '0') END,
        CASE WHEN j.backoff_max IS NOT NULL THEN pgsched.bad_interval('backoff_max', j.backoff_max, '0') END,
        CASE WHEN j.backoff_jitter IS NOT NULL THEN
            pgsched.out_of_range('backoff_jitter', j.backoff_jitter::numeric, 0, 1) END,
        CASE WHEN j.success_codes IS NULL THEN 'success_codes: must not be null' END,
        CASE WHEN j.success_codes IS DISTINCT FROM '{0}' THEN pgsched.bad_codes('success_codes', j.success_codes) END,
        CASE WHEN j.retry_codes IS NOT NULL THEN pgsched.bad_codes('retry_codes', j.retry_codes) END,
        CASE WHEN j.dead_codes IS NOT NULL THEN pgsched.bad_codes('dead_codes', j.dead_codes) END,
        CASE WHEN j.delete_after_run IS NULL THEN 'delete_after_run: must not be null' END,
        CASE WHEN j.delete_after_run AND j.schedule IS NOT NULL THEN
            'delete_after_run: is for jobs that run once; this one has a schedule' END,
        CASE WHEN j.paused IS NULL THEN 'paused: must not be null' END,
        CASE WHEN j.paused_by IS NOT NULL THEN pgsched.bad_length('paused_by', j.paused_by, 200) END,
        CASE WHEN j.paused_reason IS NOT NULL THEN pgsched.bad_length('paused_reason', j.paused_reason, 10000) END,
        CASE WHEN j.description IS NOT NULL THEN pgsched.bad_length('description', j.description, 65536) END,
        CASE WHEN j.tags IS NOT NULL THEN pgsched.bad_tags(j.tags) END,
        CASE WHEN j.resume_from IS DISTINCT FROM 'now' THEN
            pgsched.not_one_of('resume_from', j.resume_from, ARRAY['now', 'pause']) END,
        CASE WHEN j.concurrency_key IS NOT NULL THEN pgsched.bad_text('concurrency_key', j.concurrency_key, 200) END,
        CASE WHEN j.concurrency_limit IS NOT NULL THEN
            pgsched.out_of_range('concurrency_limit', j.concurrency_limit, 0, 1000000) END,
        CASE WHEN j.mode IS DISTINCT FROM 'run' THEN pgsched.not_one_of('mode', j.mode, ARRAY['run', 'shadow']) END,
        CASE WHEN j.on_excluded IS DISTINCT FROM 'skip' THEN
            pgsched.not_one_of('on_excluded', j.on_excluded, ARRAY['skip', 'next_business_day', 'previous']) END,
        CASE WHEN j.after_match IS DISTINCT FROM 'same' THEN
            pgsched.not_one_of('after_match', j.after_match, ARRAY['same', 'latest', 'since_last']) END,
        CASE WHEN j.pause_after_failures IS NOT NULL THEN
            pgsched.out_of_range('pause_after_failures', j.pause_after_failures, 1, 1000) END,
        -- beside it the event and the id of a run stand in the URL, of at most 8192 characters
        CASE WHEN length(j.ping_url) > 8000 THEN
                 format('ping_url: %s characters, at most 8000 are allowed', length(j.ping_url))
             WHEN j.ping_url IS NOT NULL THEN
                 replace(split_part(pgsched.http_url_error(j.ping_url), ';', 1), 'task:', 'ping_url:') END,
        CASE WHEN j.alert_to IS NOT NULL THEN pgsched.bad_targets('alert_to', j.alert_to) END
    );
BEGIN
    IF problem IS NULL AND j.calendar IS NOT NULL
        AND NOT EXISTS (SELECT FROM pgsched.calendars c WHERE c.name = j.calendar) THEN
        RETURN format('calendar: there is no calendar named "%s"%s', left(j.calendar, 200),
            pgsched.did_you_mean(left(j.calendar, 200), ARRAY(SELECT c.name FROM pgsched.calendars c ORDER BY c.name LIMIT 1000)));
    END IF;
    RETURN problem;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.job_named(job text)
 RETURNS pgsched.jobs
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    j pgsched.jobs;
BEGIN
    SELECT * INTO j FROM pgsched.jobs o WHERE o.name = job_named.job;
    IF NOT FOUND THEN
        PERFORM pgsched.refuse_unknown_job(job);
    END IF;
    RETURN j;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.job_options(j pgsched.jobs)
 RETURNS jsonb
 LANGUAGE sql
 IMMUTABLE
AS $function$
    SELECT CASE
        WHEN j.kind IN ('command', 'shell') AND
             (j.success_codes <> '{0}' OR j.retry_codes IS NOT NULL OR j.dead_codes IS NOT NULL)
        THEN jsonb_build_object('success_codes', j.success_codes, 'retry_codes', j.retry_codes,
                                'dead_codes', j.dead_codes)
             || CASE WHEN j.ping_url IS NULL THEN '{}' ELSE jsonb_build_object('ping_url', j.ping_url) END
        WHEN j.ping_url IS NOT NULL THEN jsonb_build_object('ping_url', j.ping_url) END
$function$;

CREATE OR REPLACE FUNCTION pgsched.job_stands(j pgsched.jobs)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT nullif(concat_ws('; ',
        CASE WHEN j.paused THEN format('paused by %s since %s%s; no slots until it is resumed', j.paused_by, pgsched.utc(j.paused_at),
                                       coalesce(': ' || nullif(j.paused_reason, ''), '')) END,
        CASE WHEN j.error IS NOT NULL THEN format('in error: %s; no slots until it is changed', j.error)
             WHEN j.next_run_at IS NOT NULL THEN NULL
             WHEN j.schedule IS NULL THEN 'its one slot is decided'
             WHEN j.run_count >= j.max_runs THEN format('it has had all its runs: its max_runs is %s', j.max_runs)
             WHEN j.ends_at IS NOT NULL THEN 'it has ended: its ends_at is ' || pgsched.utc(j.ends_at)
             ELSE 'its schedule has no more slots' END), '')
$function$;

CREATE OR REPLACE FUNCTION pgsched.job_state(j pgsched.jobs)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN j.paused THEN 'paused' WHEN j.error IS NOT NULL THEN 'error' WHEN j.next_run_at IS NULL THEN 'done'
                WHEN j.mode = 'shadow' THEN 'shadow' ELSE 'active' END
$function$;

CREATE OR REPLACE FUNCTION pgsched.job_status(job text DEFAULT NULL::text, n integer DEFAULT 1000)
 RETURNS TABLE(name text, state text, paused_by text, paused_reason text, next_slot timestamp with time zone, last_run bigint, last_slot timestamp with time zone, last_state text, late interval, running bigint, queued bigint, failures bigint, error text)
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    named text := CASE WHEN job_status.job IS NOT NULL THEN (pgsched.job_named(job_status.job)).name END;
BEGIN
    PERFORM pgsched.refuse_many(job_status.n, 10000);
    RETURN QUERY
    SELECT j.name, pgsched.job_state(j), j.paused_by, j.paused_reason, pgsched.next_slot(j), last.id, last.scheduled_at, last.state,
        CASE WHEN last.origin = 'schedule' THEN pgsched.first_start(last.id, last.started_at) - last.scheduled_at END,
        open.running, open.queued, failed.n, j.error
    FROM (SELECT o.* FROM pgsched.jobs o WHERE o.name >= coalesce(named, '')
          ORDER BY o.name LIMIT CASE WHEN named IS NULL THEN job_status.n ELSE 1 END) j
    LEFT JOIN LATERAL (
        SELECT r.id, r.scheduled_at, r.state, r.origin, r.started_at FROM pgsched.runs r WHERE r.job_id = j.id
        ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 1) last ON true
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE c.state = 'running') AS running, count(*) FILTER (WHERE c.state <> 'running') AS queued
        FROM (SELECT r.state FROM pgsched.runs r WHERE r.job_id = j.id AND r.phase < 3 /* open */ LIMIT 1000) c) open
    CROSS JOIN LATERAL (
        SELECT count(*) AS n FROM (
            SELECT bool_or(e.state = 'succeeded') OVER (ORDER BY e.scheduled_at DESC) AS is_over FROM (
                SELECT r.state, r.scheduled_at, r.origin FROM pgsched.runs r WHERE r.job_id = j.id
                ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 100) e
            WHERE e.state IN ('succeeded', 'dead') AND e.origin <> 'backfill') f WHERE NOT f.is_over) failed
    ORDER BY j.name;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.jobs_after_delete()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    UPDATE pgsched.runs
    SET state = 'cancelled', finished_at = clock_timestamp(), reason = format('job %s was deleted', OLD.name)
    WHERE job_id = OLD.id AND phase < 3 /* open */ AND state <> 'running';
    PERFORM pgsched.forget_slots(OLD.id);
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.jobs_after_jobs()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    problem text;
    wrong bigint;
BEGIN
    SELECT a.id INTO wrong FROM unnest(NEW.after_jobs) a(id)
    WHERE NOT EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = a.id AND pgsched.may_change(j.owner))
      AND a.id IS DISTINCT FROM NEW.id LIMIT 1;
    problem := CASE
        WHEN array_ndims(NEW.after_jobs) > 1 THEN 'after_jobs: must be a plain list of the ids of jobs'
        WHEN array_position(NEW.after_jobs, NULL) IS NOT NULL THEN 'after_jobs: must not hold null'
        WHEN cardinality(NEW.after_jobs) > 100 THEN
            format('after_jobs: %s jobs, at most 100 are allowed', cardinality(NEW.after_jobs))
        WHEN NEW.id = ANY (NEW.after_jobs) THEN 'after_jobs: a job cannot wait for itself'
        WHEN wrong IS NOT NULL THEN format('after_jobs: there is no job %s', wrong) END;
    IF problem IS NULL THEN
        WITH RECURSIVE before AS (
            SELECT unnest(NEW.after_jobs) AS id
            UNION
            SELECT unnest(j.after_jobs) FROM before JOIN pgsched.jobs j ON j.id = before.id
        )
        SELECT format('after_jobs: job "%s" waits for this one already, itself or by way of others', j.name) INTO problem
        FROM before CROSS JOIN pgsched.jobs j
        WHERE before.id = NEW.id AND j.id = ANY (NEW.after_jobs) LIMIT 1;
    END IF;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'jobs');
    END IF;
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.jobs_before_insert()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    moment timestamptz := clock_timestamp();
    problem text := coalesce(pgsched.job_error(NEW), pgsched.bad_owner(NEW.owner));
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'jobs');
    END IF;
    NEW.created_at := moment;
    NEW.updated_at := moment;
    NEW.anchor_at := coalesce(NEW.starts_at, moment);
    NEW.run_count := 0;
    NEW.error := NULL;
    NEW.error_at := NULL;
    NEW.shifts := NULL;
    IF NEW.schedule IS NULL THEN
        NEW.run_at := coalesce(NEW.run_at, moment);
        NEW.decided_until := '-infinity';
        -- where a calendar shifts it to, the leader finds out
        NEW.next_run_at := CASE WHEN NEW.on_excluded = 'skip' THEN NEW.run_at ELSE least(NEW.run_at, moment) END;
    ELSE
        NEW.decided_until := moment;  -- only slots after this instant exist
        NEW.next_run_at := moment;  -- due at once: the leader plans it
    END IF;
    IF NEW.paused THEN
        NEW.paused_at := moment;
        NEW.paused_by := coalesce(NEW.paused_by, session_user);
    ELSE
        NEW.paused_at := NULL;
        NEW.paused_by := NULL;
        NEW.paused_reason := NULL;
        NEW.resume_from := 'now';
    END IF;
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.jobs_before_update()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    moment timestamptz := clock_timestamp();
    was pgsched.jobs := OLD;
    resumed text := CASE WHEN OLD.paused AND NOT NEW.paused THEN NEW.resume_from END;
BEGIN
    NEW := pgsched.edit_allowed(OLD, NEW);
    NEW.id := OLD.id;
    NEW.created_at := OLD.created_at;
    NEW.updated_at := moment;
    NEW := pgsched.edit_pause(OLD, NEW, moment);
    IF OLD.mode = 'shadow' AND NEW.mode = 'run' AND NOT OLD.paused THEN
        was := pgsched.leave_shadow(OLD, moment);
        NEW.decided_until := was.decided_until;
        NEW.next_run_at := was.next_run_at;
    END IF;
    IF NEW.schedule IS NULL THEN
        RETURN pgsched.edit_once(was, NEW, moment, resumed);
    END IF;
    RETURN pgsched.edit_schedule(was, NEW, moment, resumed);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.jobs_high_water_mark()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF coalesce(current_setting('pgsched.lowers_mark', true), '') <> 'on' THEN
        NEW.decided_until := OLD.decided_until;
    ELSE
        NEW.decided_until := least(OLD.decided_until,
            greatest(NEW.decided_until, clock_timestamp(), pgsched.newest_slot(NEW.id)));
    END IF;
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.jobs_in_order(job text, upstream boolean, downstream boolean)
 RETURNS text[]
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    most constant integer := 200;
    first_id bigint := (pgsched.job_named(jobs_in_order.job)).id;
    found bigint[] := ARRAY[first_id];
    border bigint[];
    way text;
    placed bigint[] := '{}';
    ready bigint[];
BEGIN
    FOREACH way IN ARRAY ARRAY['up', 'down'] LOOP
        border := CASE WHEN CASE way WHEN 'up' THEN jobs_in_order.upstream ELSE jobs_in_order.downstream END
                       THEN ARRAY[first_id] ELSE '{}' END;
        WHILE cardinality(border) > 0 LOOP
            border := ARRAY(
                SELECT j.id FROM pgsched.jobs j WHERE j.id <> ALL (found) AND CASE way
                    WHEN 'up' THEN j.id IN (SELECT unnest(o.after_jobs) FROM pgsched.jobs o WHERE o.id = ANY (border))
                    ELSE j.after_jobs && border END
                LIMIT most);
            found := found || border;
            IF cardinality(found) > most THEN
                PERFORM pgsched.raise_bad_value(format('job: more than %s jobs are before or behind "%s": start their'
                    ' backfills in parts', most, jobs_in_order.job), 'backfills');
            END IF;
        END LOOP;
    END LOOP;
    WHILE cardinality(placed) < cardinality(found) LOOP
        ready := ARRAY(
            SELECT j.id FROM pgsched.jobs j WHERE j.id = ANY (found) AND j.id <> ALL (placed)
                AND NOT EXISTS (SELECT FROM unnest(j.after_jobs) a(id) WHERE a.id = ANY (found) AND a.id <> ALL (placed))
            ORDER BY j.name);
        IF ready = '{}' THEN
            PERFORM pgsched.raise_bad_value('job: its jobs wait for each other (after_jobs)', 'backfills');
        END IF;
        placed := placed || ready;
    END LOOP;
    RETURN ARRAY(SELECT j.name FROM unnest(placed) WITH ORDINALITY p(id, place) JOIN pgsched.jobs j ON j.id = p.id
                 ORDER BY p.place);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.jobs_notify()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM pgsched.notify('pgsched_leader', 'jobs');
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.jobs_plan_again()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    NEW.next_run_at := clock_timestamp();
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.jobs_refuse_unstarted()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF NEW.jitter > pgsched.every_interval(NEW.schedule) THEN
        PERFORM pgsched.raise_bad_value(format(
            'jitter: %s is longer than the interval of the schedule: under overlap "%s" a slot would end the one before '
            'it, which has not started', NEW.jitter, NEW.overlap), 'jobs');
    END IF;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.jobs_refuse_watch()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    problem text := coalesce(
        CASE WHEN NEW.alert_after_failures IS NOT NULL THEN
            pgsched.out_of_range('alert_after_failures', NEW.alert_after_failures, 0, 1000) END,
        pgsched.bad_interval('max_lateness', nullif(NEW.max_lateness, '0'), '1 second'),
        pgsched.bad_interval('max_duration', nullif(NEW.max_duration, '0'), '1 second'),
        pgsched.bad_interval('expect_every', nullif(NEW.expect_every, '0'), '1 second'),
        pgsched.bad_interval('finish_by', nullif(NEW.finish_by, '0'), '1 second'));
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, TG_TABLE_NAME);
    END IF;
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.jobs_rekey()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
BEGIN
    IF (NEW.concurrency_key, NEW.concurrency_limit) IS NOT DISTINCT FROM (OLD.concurrency_key, OLD.concurrency_limit) THEN
        RETURN NULL;
    END IF;
    PERFORM FROM pgsched.jobs j WHERE j.id = NEW.id FOR UPDATE;
    UPDATE pgsched.runs r SET concurrency_key = (
            SELECT pgsched.limited_key(r.task, o.more, coalesce(
                pgsched.run_key(NEW.id, NEW.concurrency_key, NEW.concurrency_limit, r.args),
                pgsched.run_key(NULL, o.concurrency_key, NULL, r.args)))
            FROM pgsched.task_options(CASE r.kind WHEN 'task' THEN r.task END) o),
        ready_at = CASE WHEN r.state = 'queued' THEN coalesce(r.ready_at, clock_timestamp()) ELSE r.ready_at END,
        state = CASE WHEN r.state = 'queued' THEN 'waiting' ELSE r.state END
    WHERE r.job_id = NEW.id AND r.phase < 3 /* open */;
    PERFORM pgsched.notify('pgsched_leader', 'limits');
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.json_misfit(schema jsonb, value jsonb, path text, root jsonb, levels integer, INOUT steps integer, OUT misfit text)
 RETURNS record
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_variable
DECLARE
    too_much CONSTANT text := 'not checked: there is too much of it';
    remarks CONSTANT text[] := ARRAY['title', 'description', 'default', 'examples', 'format', '$defs', 'contentEncoding'];
    known CONSTANT text[] := ARRAY['$ref', 'type', 'enum', 'const', 'anyOf', 'required', 'properties', 'items',
        'additionalProperties'];
    sub text;
    unchecked text;
    doubt text;  -- what could not be checked of an alternative
    is_type text := CASE WHEN jsonb_typeof(value) = 'number' AND value::numeric = trunc(value::numeric) THEN 'integer'
                         ELSE jsonb_typeof(value) END;
    types jsonb;
    one record;
BEGIN
    steps := steps - 1;
    IF jsonb_typeof(schema) = 'boolean' THEN
        misfit := CASE WHEN NOT schema::boolean THEN format('%s: no value is allowed', path) END;
        RETURN;
    ELSIF steps < 0 THEN
        misfit := too_much;
        RETURN;
    ELSIF jsonb_typeof(schema) <> 'object' OR levels <= 0 THEN
        misfit := format('not checked: %s', path);
        RETURN;
    END IF;
    SELECT format('not checked: %s of %s', k.name, path) INTO unchecked FROM jsonb_object_keys(schema) k(name)
    WHERE k.name <> ALL (remarks || known) LIMIT 1;
    IF schema ? '$ref' THEN
        IF NOT coalesce(root -> '$defs' ? substr(schema ->> '$ref', 9), false) OR NOT starts_with(schema ->> '$ref', '#/$defs/') THEN
            misfit := format('not checked: $ref of %s', path);
            RETURN;
        END IF;
        SELECT m.steps, m.misfit INTO steps, sub
        FROM pgsched.json_misfit(root -> '$defs' -> substr(schema ->> '$ref', 9), value, path, root, levels - 1, steps) m;
        IF sub IS NOT NULL AND NOT starts_with(sub, 'not checked: ') THEN
            misfit := sub;
            RETURN;
        END IF;
        unchecked := coalesce(unchecked, sub);
    END IF;
    IF schema ? 'type' THEN
        types := CASE jsonb_typeof(schema -> 'type') WHEN 'array' THEN schema -> 'type' ELSE jsonb_build_array(schema -> 'type') END;
        IF NOT (types ? is_type OR is_type = 'integer' AND types ? 'number') THEN
            misfit := format('%s: expected %s, got %s', path,
                (SELECT string_agg(t.name, ' or ') FROM jsonb_array_elements_text(types) t(name)), is_type);
            RETURN;
        END IF;
    END IF;
    IF schema ? 'const' AND schema -> 'const' <> value
        OR jsonb_typeof(schema -> 'enum') = 'array' AND NOT schema -> 'enum' @> jsonb_build_array(value) THEN
        misfit := format('%s: expected one of %s', path, left(coalesce(schema ->> 'enum', schema ->> 'const'), 200));
        RETURN;
    END IF;
    IF jsonb_typeof(schema -> 'anyOf') = 'array' THEN
        -- of several problems, that of the first alternative other than "null"
        FOR one IN SELECT a.value FROM jsonb_array_elements(schema -> 'anyOf') WITH ORDINALITY a(value, place)
            ORDER BY a.value ->> 'type' = 'null', a.place LOOP
            IF steps < 0 THEN
                doubt := coalesce(doubt, too_much);
                EXIT;
            END IF;
            SELECT m.steps, m.misfit INTO steps, sub FROM pgsched.json_misfit(one.value, value, path, root, levels - 1, steps) m;
            IF sub IS NULL THEN
                misfit := NULL;
                doubt := NULL;
                EXIT;
            ELSIF starts_with(sub, 'not checked: ') THEN
                doubt := least(doubt, sub);
            ELSE
                misfit := coalesce(misfit, sub);
            END IF;
        END LOOP;
        IF misfit IS NOT NULL AND doubt IS NULL THEN
            RETURN;
        END IF;
        misfit := NULL;
        unchecked := coalesce(unchecked, doubt);
    END IF;
    IF is_type = 'object' THEN
        SELECT format('%s is missing', k.name) INTO sub
        FROM jsonb_array_elements_text(CASE jsonb_typeof(schema -> 'required') WHEN 'array' THEN schema -> 'required' ELSE '[]' END) k(name)
        WHERE NOT value ? k.name LIMIT 1;
        IF sub IS NOT NULL THEN
            misfit := ltrim(format('%s.%s', path, sub), '.');
            RETURN;
        END IF;
    END IF;
    IF is_type = 'object' AND schema ?| '{properties,additionalProperties}' THEN
        steps := steps - (SELECT count(*)::integer FROM jsonb_object_keys(value));
    ELSIF is_type = 'array' AND schema ? 'items' THEN
        steps := steps - jsonb_array_length(value);
    END IF;
    IF steps < 0 THEN
        unchecked := coalesce(unchecked, too_much);
    ELSIF is_type = 'object' AND schema ?| '{properties,additionalProperties}' THEN
        FOR one IN SELECT key, v.value FROM jsonb_each(value) v LOOP
            sub := NULL;
            IF coalesce(schema -> 'properties' ? one.key, false) THEN
                SELECT m.steps, m.misfit INTO steps, sub
                FROM pgsched.json_misfit(schema -> 'properties' -> one.key, one.value,
                                         ltrim(format('%s.%s', path, one.key), '.'), root, levels - 1, steps + 1) m;
            ELSIF schema -> 'additionalProperties' = 'false' THEN
                sub := ltrim(format('%s.%s: there is no such argument', path, one.key), '.');
            ELSIF schema ? 'additionalProperties' THEN
                SELECT m.steps, m.misfit INTO steps, sub
                FROM pgsched.json_misfit(schema -> 'additionalProperties', one.value,
                                         format('%s[%s]', path, to_jsonb(one.key)), root, levels - 1, steps + 1) m;
            END IF;
            IF sub IS NOT NULL AND NOT starts_with(sub, 'not checked: ') THEN
                misfit := sub;
                RETURN;
            END IF;
            unchecked := coalesce(unchecked, sub);
            EXIT WHEN steps < 0;
        END LOOP;
    ELSIF is_type = 'array' AND schema ? 'items' THEN
        FOR one IN SELECT e.value, e.place FROM jsonb_array_elements(value) WITH ORDINALITY e(value, place) LOOP
            SELECT m.steps, m.misfit INTO steps, sub
            FROM pgsched.json_misfit(schema -> 'items', one.value, format('%s[%s]', path, one.place - 1), root, levels - 1, steps + 1) m;
            IF sub IS NOT NULL AND NOT starts_with(sub, 'not checked: ') THEN
                misfit := sub;
                RETURN;
            END IF;
            unchecked := coalesce(unchecked, sub);
            EXIT WHEN steps < 0;
        END LOOP;
    END IF;
    misfit := unchecked;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.keep_error(keep jsonb)
 RETURNS text
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET "IntervalStyle" TO 'postgres'
AS $function$
DECLARE
    outcome text;
    value jsonb;
    problem text;
BEGIN
    IF jsonb_typeof(keep) <> 'object' THEN
        RETURN 'keep: expected an object such as {"succeeded": "1 day", "any": "7 days"}';
    END IF;
    FOR outcome, value IN SELECT * FROM jsonb_each(keep) LOOP
        IF outcome NOT IN ('succeeded', 'dead', 'cancelled', 'skipped', 'missed', 'any') THEN
            RETURN format('keep: "%s" is not one of succeeded, dead, cancelled, skipped, missed, any', left(outcome, 50));
        END IF;
        BEGIN
            problem := pgsched.bad_interval('keep: ' || outcome, (value #>> '{}')::interval, '0');
        EXCEPTION WHEN data_exception THEN
            problem := format('keep: %s: %s is not an interval', outcome, left(value::text, 50));
        END;
        IF problem IS NOT NULL OR jsonb_typeof(value) <> 'string' THEN
            RETURN coalesce(problem, format('keep: %s: %s is not an interval: it needs a unit', outcome, left(value::text, 50)));
        END IF;
    END LOOP;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.keep_of(state text, of_job jsonb, of_queue jsonb, of_all jsonb)
 RETURNS interval
 LANGUAGE sql
 STABLE
AS $function$
    SELECT coalesce(of_job ->> state, of_job ->> 'any', of_queue ->> state, of_queue ->> 'any',
                    of_all ->> state, of_all ->> 'any', '7 days')::interval
$function$;

CREATE OR REPLACE FUNCTION pgsched.kept_keys_met()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    NEW.met := CASE WHEN NEW.run_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM pgsched.runs r WHERE r.id = NEW.run_id AND r.idempotency_key = NEW.key) THEN true END;
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.key_argument(field text, name text, args jsonb, defaults jsonb)
 RETURNS jsonb
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    given jsonb := coalesce(CASE jsonb_typeof(args) WHEN 'object' THEN args -> name
        WHEN 'array' THEN CASE WHEN name ~ E'^\\d{1,4}$' THEN args -> name::integer END END, defaults -> name);
BEGIN
    IF given IS NULL THEN
        PERFORM pgsched.raise_bad_value(format('%s: the run has no argument "%s", and it has no default', field,
            left(name, 60)), 'runs');
    END IF;
    RETURN pgsched.canonical_json(given);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.known_slots(j pgsched.jobs)
 RETURNS TABLE(slot timestamp with time zone, east interval, excluded text, nominal timestamp with time zone)
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT s.slot, s.east, coalesce(CASE WHEN j.calendar IS NULL AND j.on_excluded = 'skip'
            THEN pgsched.excluded_date(j.id, ((s.slot AT TIME ZONE 'UTC') + s.east)::date)
            ELSE pgsched.excluded_at(j, (s.slot AT TIME ZONE 'UTC') + s.east) END,
        CASE WHEN j.mode = 'shadow' THEN 'shadow' END), s.nominal
    FROM (
        SELECT u.slot, make_interval(secs => u.seconds) AS east, u.nominal
        FROM pgsched.next_slots k CROSS JOIN LATERAL unnest(k.slots, k.offsets, k.nominals) u(slot, seconds, nominal)
        WHERE k.job_id = j.id AND (k.schedule, k.timezone, k.anchor_at) = (j.schedule, j.timezone, j.anchor_at)
            AND (k.excluded IS NULL AND j.on_excluded = 'skip' AND j.shifts IS NULL OR k.excluded = pgsched.excluded_mark(j))
        UNION ALL
        SELECT r.at, pgsched.east_of_utc(r.at, j.timezone), CASE WHEN r.at <> j.run_at THEN j.run_at END
        -- one that is shifted is where the leader has planned it
        FROM (SELECT CASE WHEN j.on_excluded = 'skip' THEN j.run_at ELSE j.next_run_at END AS at) r
        WHERE j.schedule IS NULL AND j.run_at IS NOT NULL AND j.next_run_at IS NOT NULL
    ) s
    WHERE s.slot > j.decided_until AND (j.starts_at IS NULL OR s.slot >= j.starts_at)
        AND (j.ends_at IS NULL OR s.slot <= j.ends_at) AND isfinite(s.slot)
    ORDER BY s.slot
$function$;

CREATE OR REPLACE FUNCTION pgsched.kv_add(key text, amount numeric)
 RETURNS numeric
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    found pgsched.store;
    total numeric;
BEGIN
    PERFORM pgsched.check_key(key);
    IF amount IS NULL OR amount::text IN ('NaN', 'Infinity', '-Infinity') OR length(amount::text) > 1000 THEN
        PERFORM pgsched.raise_bad_value(format('amount: expected a number, got %s', coalesce(left(amount::text, 60), 'null')), 'store');
    END IF;
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);
    SELECT * INTO found FROM pgsched.store k WHERE k.key = kv_add.key AND pgsched.session_lives(k.session);
    IF jsonb_typeof(found.value) <> 'number' THEN
        PERFORM pgsched.raise_bad_value(format('key: "%s" is no number, but of type %s', key, jsonb_typeof(found.value)), 'store');
    END IF;
    total := coalesce(found.value::numeric, 0) + amount;
    PERFORM pgsched.check_value(to_jsonb(total));
    PERFORM pgsched.store_write(pgsched.store_root(key), key, to_jsonb(total), found.session);
    RETURN total;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.kv_changes(prefix text, since bigint, most integer DEFAULT 1000)
 RETURNS TABLE(upto bigint, skipped boolean, look_at timestamp with time zone, version bigint, key text, value jsonb, changed_at timestamp with time zone)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    of_root text := pgsched.store_root(prefix);
    may_see text := pgsched.check_prefix(prefix);
    -- who may only read locks nothing
    may_write boolean := may_see <> 'read' AND current_setting('transaction_read_only') = 'off';
    o pgsched.store_roots;
BEGIN
    SELECT * INTO o FROM pgsched.store_roots r WHERE r.root = of_root;
    IF may_write AND (o.look_at <= clock_timestamp() OR o.watched_until < clock_timestamp() + interval '30 s') THEN
        PERFORM FROM pgsched.store_roots r WHERE r.root = of_root FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            PERFORM pgsched.store_lock(of_root);
            UPDATE pgsched.store_roots r SET watched_until = clock_timestamp() + interval '1 min' WHERE r.root = of_root;
        END IF;
    END IF;
    -- one statement, so that version and changes are those of one moment
    RETURN QUERY
    WITH seen AS MATERIALIZED (
        SELECT r.root, r.owner, coalesce(since NOT BETWEEN r.kept_after AND r.version, false) AS skips,
            CASE WHEN since BETWEEN r.kept_after AND r.version
                THEN least(r.version, since + greatest(1, least(most, 1000))) ELSE r.version END AS last,
            greatest(least(r.look_at, r.watched_until - interval '30 s'),
                clock_timestamp() + CASE WHEN may_write THEN interval '0.2 s' ELSE interval '1 s' END) AS next_look
        FROM pgsched.store_roots r WHERE r.root = of_root
    )
    SELECT coalesce(f.last, 0), coalesce(f.skips, since <> 0, false), coalesce(f.next_look, clock_timestamp() + interval '30 s'),
        x.version, x.key::text, x.value, x.changed_at
    FROM (SELECT) one LEFT JOIN seen f ON true LEFT JOIN LATERAL (
        SELECT c.version, c.key, c.value, c.changed_at FROM pgsched.store_changes c
        WHERE NOT f.skips AND c.root = f.root AND c.version > since AND c.version <= f.last AND starts_with(c.key, prefix)
          AND (may_see <> 'some' OR pgsched.may_use(left(c.key, 200), f.owner))
    ) x ON true
    ORDER BY x.version;
    IF o.root IS NULL THEN
        PERFORM pgsched.check_prefix(prefix);  -- once more: somebody may have made the root meanwhile
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.kv_delete(key text, expected bigint DEFAULT NULL::bigint)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    found bigint;
BEGIN
    PERFORM pgsched.check_key(key);
    IF NOT EXISTS (SELECT FROM pgsched.store k WHERE k.key = kv_delete.key) THEN
        RETURN NULL;  -- so that it makes no root, which would belong to the caller
    END IF;
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);
    SELECT k.version INTO found FROM pgsched.store k WHERE k.key = kv_delete.key AND pgsched.session_lives(k.session);
    IF found IS NULL OR expected <> found THEN
        RETURN NULL;
    END IF;
    RETURN pgsched.store_write(pgsched.store_root(key), key, NULL, NULL);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.kv_get(key text, OUT value jsonb, OUT version bigint, OUT revision bigint, OUT changed_at timestamp with time zone, OUT bound boolean)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    SELECT k.value, k.version, k.revision, k.changed_at, k.session IS NOT NULL INTO value, version, revision, changed_at, bound
    FROM pgsched.store k WHERE k.key = kv_get.key AND pgsched.session_lives(k.session);
    IF NOT pgsched.reads_all() THEN
        PERFORM pgsched.check_key(key);  -- last: what was read has an owner that this sees
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.kv_list(prefix text DEFAULT ''::text, after text DEFAULT ''::text, most integer DEFAULT 1000)
 RETURNS TABLE(key text, value jsonb, version bigint, revision bigint, changed_at timestamp with time zone, bound boolean)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET plan_cache_mode TO 'force_custom_plan'
AS $function$
DECLARE
    beyond text := pgsched.after_prefix(prefix);
    in_a_root boolean := strpos(prefix, '/') > 1;
    everywhere boolean := in_a_root OR pgsched.reads_all();  -- a prefix in a root has no keys of other roots
    partly boolean;
    roots text[];
BEGIN
    IF in_a_root THEN
        partly := pgsched.check_prefix(prefix) = 'some';
    ELSE
        partly := NOT everywhere AND EXISTS (SELECT FROM pgsched.name_grants);
        roots := CASE WHEN NOT everywhere THEN pgsched.roots_of_caller(prefix) END;
    END IF;
    RETURN QUERY
    SELECT k.key::text, k.value, k.version, k.revision, k.changed_at, k.session IS NOT NULL
    FROM pgsched.store k LEFT JOIN pgsched.sessions s ON s.id = k.session
    WHERE k.key >= prefix COLLATE "C" AND k.key > after COLLATE "C" AND (beyond IS NULL OR k.key < beyond COLLATE "C")
      AND starts_with(k.key, prefix) AND (everywhere OR k.root = ANY (roots))
      AND (NOT partly OR pgsched.may_use(left(k.key, 200), (SELECT o.owner FROM pgsched.store_roots o WHERE o.root = k.root)))
      AND (k.session IS NULL OR s.ended_at IS NULL AND s.lease_until > clock_timestamp())
    ORDER BY k.key LIMIT greatest(0, least(most, 1000));
    IF in_a_root THEN
        PERFORM pgsched.check_prefix(prefix);  -- once more: somebody may have made the root meanwhile
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.kv_put(key text, value jsonb, expected bigint DEFAULT NULL::bigint, session uuid DEFAULT NULL::uuid)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM pgsched.check_key(key);
    PERFORM pgsched.check_value(value);
    IF expected > 0 AND NOT EXISTS (SELECT FROM pgsched.store k WHERE k.key = kv_put.key) THEN
        RETURN NULL;  -- so that it makes no root, which would belong to the caller
    END IF;
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);  -- its owner is certain now
    IF expected <> coalesce((SELECT k.version FROM pgsched.store k WHERE k.key = kv_put.key AND pgsched.session_lives(k.session)), 0) THEN
        RETURN NULL;
    END IF;
    RETURN pgsched.store_write(pgsched.store_root(key), key, value, pgsched.living_session(session));
END $function$;

CREATE OR REPLACE FUNCTION pgsched.last_error(r pgsched.runs)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT split_part(coalesce(nullif(r.error, ''), (SELECT a.error FROM pgsched.attempts a WHERE a.run_id = r.id AND a.error <> ''
                                                     ORDER BY a.attempt DESC, a.finished_at DESC LIMIT 1)), E'\n', 1)
$function$;

CREATE OR REPLACE FUNCTION pgsched.leader_absences(since timestamp with time zone, until timestamp with time zone, OUT words text, OUT first_at timestamp with time zone)
 RETURNS record
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    WITH term AS (
        SELECT l.elected_at, coalesce(l.resigned_at, CASE WHEN l.seen_at > clock_timestamp() - interval '5 seconds'
                                                     THEN clock_timestamp() ELSE l.seen_at END) AS led_until
        FROM pgsched.leader l WHERE coalesce(l.resigned_at, l.seen_at) >= since AND l.elected_at < until
    ), gap AS (
        SELECT greatest(since, max(t.led_until) OVER (ORDER BY t.elected_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS begun,
            t.elected_at AS ended FROM term t
        UNION ALL
        SELECT greatest(since, (SELECT max(t.led_until) FROM term t)), until
    )
    SELECT string_agg(format('from %s to %s', pgsched.utc(g.begun), pgsched.utc(g.ended)), ' and ' ORDER BY g.begun), min(g.begun)
    FROM gap g WHERE g.ended - g.begun > interval '5 seconds'
$function$;

CREATE OR REPLACE FUNCTION pgsched.leader_sleeps(seconds double precision)
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM setval('pgsched.leader_looks_at', (date_part('epoch', clock_timestamp()) * 1000)::bigint
        + (least(greatest(seconds, 0), 60) * 1000)::bigint);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.leave_lines(sessions bigint[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    one text;
BEGIN
    FOR one IN SELECT DISTINCT p.lock FROM pgsched.lock_places p WHERE p.session = ANY (sessions) ORDER BY p.lock LIMIT 1000 LOOP
        CONTINUE WHEN NOT EXISTS (SELECT FROM pgsched.locks l WHERE l.name = one FOR NO KEY UPDATE SKIP LOCKED);
        PERFORM FROM pgsched.lock_row(one);
        PERFORM pgsched.lock_leave(one, p.place) FROM pgsched.lock_places p WHERE p.lock = one AND p.session = ANY (sessions);
        PERFORM pgsched.lock_settle(one);
    END LOOP;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.leave_shadow(j pgsched.jobs, moment timestamp with time zone)
 RETURNS pgsched.jobs
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    begun timestamptz := greatest(j.decided_until, j.starts_at - interval '1 microsecond',
        CASE WHEN j.schedule IS NULL THEN j.run_at - interval '1 microsecond' END);
    ended timestamptz := least(moment, j.ends_at, CASE WHEN j.schedule IS NULL THEN j.run_at END);
BEGIN
    IF j.next_run_at IS NULL OR j.next_run_at > moment OR begun >= ended THEN
        RETURN j;
    END IF;
    INSERT INTO pgsched.passed_over (job_id, schedule, timezone, anchor_at, after_at, until_at, state, reason,
        calendar, on_excluded, shifts)
    VALUES (j.id, j.schedule, j.timezone, j.anchor_at, begun, ended, 'skipped', 'shadow',
        j.calendar, j.on_excluded, j.shifts);
    j.decided_until := ended;
    j.next_run_at := CASE WHEN j.schedule IS NOT NULL THEN moment END;
    RETURN j;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.limit_of(key text, OUT name text, OUT concurrency integer, OUT rate integer, OUT period_s double precision, OUT burst integer, OUT ordered boolean, OUT weight integer)
 RETURNS SETOF record
 LANGUAGE sql
 STABLE
AS $function$
    SELECT j.name, j.concurrency_limit, NULL::integer, NULL::double precision, NULL::integer, false, 1
    FROM pgsched.jobs j
    WHERE j.id = CASE WHEN $1 ~ '^job:[0-9]{1,18}(:|$)' THEN split_part($1, ':', 2)::bigint END
    UNION ALL
    (SELECT l.name, l.concurrency, l.rate, extract(epoch FROM l.rate_period)::double precision, l.rate_burst, l.ordered,
         l.weight
     FROM pgsched.limits l WHERE l.name = ANY (ARRAY[$1, split_part($1, ':', 1),
         CASE WHEN $1 ~ '^task:' THEN 'task:' || split_part($1, ':', 2) END]) ORDER BY length(l.name) DESC LIMIT 1)
$function$;

CREATE OR REPLACE FUNCTION pgsched.limited_key(task text, more jsonb, key text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN more ?| '{concurrency,rate}' AND key !~ '^job(:|$)' AND NOT starts_with(key || ':', 'task:' || task || ':')
        THEN 'task:' || task || ':' || key ELSE key END
$function$;

CREATE OR REPLACE FUNCTION pgsched.limits_changed()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM pgsched.notify('pgsched_leader', 'limits');
    IF TG_OP = 'DELETE' THEN
        DELETE FROM pgsched.pauses WHERE TG_TABLE_NAME = 'queues' AND what = 'limit' AND name = OLD.name;
        RETURN OLD;
    END IF;
    NEW.applied_at := NULL;
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.listed_timezones(region text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE region
        WHEN '' THEN 'CET CST6CDT Cuba EET EST EST5EDT Egypt Eire Factory GB GB-Eire GMT GMT+0 GMT-0 GMT0 Greenwich HST
            Hongkong Iceland Iran Israel Jamaica Japan Kwajalein Libya MET MST MST7MDT NZ NZ-CHAT Navajo PRC PST8PDT
            Poland Portugal ROC ROK Singapore Turkey UCT UTC Universal W-SU WET Zulu'
        WHEN 'Africa' THEN 'Abidjan Accra Addis_Ababa Algiers Asmara Asmera Bamako Bangui Banjul Bissau Blantyre
            Brazzaville Bujumbura Cairo Casablanca Ceuta Conakry Dakar Dar_es_Salaam Djibouti Douala El_Aaiun Freetown
            Gaborone Harare Johannesburg Juba Kampala Khartoum Kigali Kinshasa Lagos Libreville Lome Luanda Lubumbashi
            Lusaka Malabo Maputo Maseru Mbabane Mogadishu Monrovia Nairobi Ndjamena Niamey Nouakchott Ouagadougou
            Porto-Novo Sao_Tome Timbuktu Tripoli Tunis Windhoek'
        WHEN 'America' THEN 'Adak Anchorage Anguilla Antigua Araguaina Argentina/Buenos_Aires Argentina/Catamarca
            Argentina/ComodRivadavia Argentina/Cordoba Argentina/Jujuy Argentina/La_Rioja Argentina/Mendoza
            Argentina/Rio_Gallegos Argentina/Salta Argentina/San_Juan Argentina/San_Luis Argentina/Tucuman
            Argentina/Ushuaia Aruba Asuncion Atikokan Atka Bahia Bahia_Banderas Barbados Belem Belize Blanc-Sablon
            Boa_Vista Bogota Boise Buenos_Aires Cambridge_Bay Campo_Grande Cancun Caracas Catamarca Cayenne Cayman
            Chicago Chihuahua Ciudad_Juarez Coral_Harbour Cordoba Costa_Rica Coyhaique Creston Cuiaba Curacao
            Danmarkshavn Dawson Dawson_Creek Denver Detroit Dominica Edmonton Eirunepe El_Salvador Ensenada Fort_Nelson
            Fort_Wayne Fortaleza Glace_Bay Godthab Goose_Bay Grand_Turk Grenada Guadeloupe Guatemala Guayaquil Guyana
            Halifax Havana Hermosillo Indiana/Indianapolis Indiana/Knox Indiana/Marengo Indiana/Petersburg
            Indiana/Tell_City Indiana/Vevay Indiana/Vincennes Indiana/Winamac Indianapolis Inuvik Iqaluit Jamaica Jujuy
            Juneau Kentucky/Louisville Kentucky/Monticello Knox_IN Kralendijk La_Paz Lima Los_Angeles Louisville
            Lower_Princes Maceio Managua Manaus Marigot Martinique Matamoros Mazatlan Mendoza Menominee Merida
            Metlakatla Mexico_City Miquelon Moncton Monterrey Montevideo Montreal Montserrat Nassau New_York Nipigon
            Nome Noronha North_Dakota/Beulah North_Dakota/Center North_Dakota/New_Salem Nuuk Ojinaga Panama Pangnirtung
            Paramaribo Phoenix Port-au-Prince Port_of_Spain Porto_Acre Porto_Velho Puerto_Rico Punta_Arenas Rainy_River
            Rankin_Inlet Recife Regina Resolute Rio_Branco Rosario Santa_Isabel Santarem Santiago Santo_Domingo
            Sao_Paulo Scoresbysund Shiprock Sitka St_Barthelemy St_Johns St_Kitts St_Lucia St_Thomas St_Vincent
            Swift_Current Tegucigalpa Thule Thunder_Bay Tijuana Toronto Tortola Vancouver Virgin Whitehorse Winnipeg
            Yakutat Yellowknife'
        WHEN 'Antarctica' THEN 'Casey Davis DumontDUrville Macquarie Mawson McMurdo Palmer Rothera South_Pole Syowa
            Troll Vostok'
        WHEN 'Arctic' THEN 'Longyearbyen'
        WHEN 'Asia' THEN 'Aden Almaty Amman Anadyr Aqtau Aqtobe Ashgabat Ashkhabad Atyrau Baghdad Bahrain Baku Bangkok
            Barnaul Beirut Bishkek Brunei Calcutta Chita Choibalsan Chongqing Chungking Colombo Dacca Damascus Dhaka
            Dili Dubai Dushanbe Famagusta Gaza Harbin Hebron Ho_Chi_Minh Hong_Kong Hovd Irkutsk Istanbul Jakarta
            Jayapura Jerusalem Kabul Kamchatka Karachi Kashgar Kathmandu Katmandu Khandyga Kolkata Krasnoyarsk
            Kuala_Lumpur Kuching Kuwait Macao Macau Magadan Makassar Manila Muscat Nicosia Novokuznetsk Novosibirsk
            Omsk Oral Phnom_Penh Pontianak Pyongyang Qatar Qostanay Qyzylorda Rangoon Riyadh Saigon Sakhalin Samarkand
            Seoul Shanghai Singapore Srednekolymsk Taipei Tashkent Tbilisi Tehran Tel_Aviv Thimbu Thimphu Tokyo Tomsk
            Ujung_Pandang Ulaanbaatar Ulan_Bator Urumqi Ust-Nera Vientiane Vladivostok Yakutsk Yangon Yekaterinburg
            Yerevan'
        WHEN 'Atlantic' THEN 'Azores Bermuda Canary Cape_Verde Faeroe Faroe Jan_Mayen Madeira Reykjavik South_Georgia
            St_Helena Stanley'
        WHEN 'Australia' THEN 'ACT Adelaide Brisbane Broken_Hill Canberra Currie Darwin Eucla Hobart LHI Lindeman
            Lord_Howe Melbourne NSW North Perth Queensland South Sydney Tasmania Victoria West Yancowinna'
        WHEN 'Brazil' THEN 'Acre DeNoronha East West'
        WHEN 'Canada' THEN 'Atlantic Central Eastern Mountain Newfoundland Pacific Saskatchewan Yukon'
        WHEN 'Chile' THEN 'Continental EasterIsland'
        WHEN 'Etc' THEN 'GMT GMT+0 GMT+1 GMT+10 GMT+11 GMT+12 GMT+2 GMT+3 GMT+4 GMT+5 GMT+6 GMT+7 GMT+8 GMT+9 GMT-0
            GMT-1 GMT-10 GMT-11 GMT-12 GMT-13 GMT-14 GMT-2 GMT-3 GMT-4 GMT-5 GMT-6 GMT-7 GMT-8 GMT-9 GMT0 Greenwich UCT
            UTC Universal Zulu'
        WHEN 'Europe' THEN 'Amsterdam Andorra Astrakhan Athens Belfast Belgrade Berlin Bratislava Brussels Bucharest
            Budapest Busingen Chisinau Copenhagen Dublin Gibraltar Guernsey Helsinki Isle_of_Man Istanbul Jersey
            Kaliningrad Kiev Kirov Kyiv Lisbon Ljubljana London Luxembourg Madrid Malta Mariehamn Minsk Monaco Moscow
            Nicosia Oslo Paris Podgorica Prague Riga Rome Samara San_Marino Sarajevo Saratov Simferopol Skopje Sofia
            Stockholm Tallinn Tirane Tiraspol Ulyanovsk Uzhgorod Vaduz Vatican Vienna Vilnius Volgograd Warsaw Zagreb
            Zaporozhye Zurich'
        WHEN 'Indian' THEN 'Antananarivo Chagos Christmas Cocos Comoro Kerguelen Mahe Maldives Mauritius Mayotte
            Reunion'
        WHEN 'Mexico' THEN 'BajaNorte BajaSur General'
        WHEN 'Pacific' THEN 'Apia Auckland Bougainville Chatham Chuuk Easter Efate Enderbury Fakaofo Fiji Funafuti
            Galapagos Gambier Guadalcanal Guam Honolulu Johnston Kanton Kiritimati Kosrae Kwajalein Majuro Marquesas
            Midway Nauru Niue Norfolk Noumea Pago_Pago Palau Pitcairn Pohnpei Ponape Port_Moresby Rarotonga Saipan
            Samoa Tahiti Tarawa Tongatapu Truk Wake Wallis Yap'
        WHEN 'US' THEN 'Alaska Aleutian Arizona Central East-Indiana Eastern Hawaii Indiana-Starke Michigan Mountain
            Pacific Samoa'
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.living_session(token uuid)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    s pgsched.sessions;
BEGIN
    IF token IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.refuse_others('the session', o.owner) FROM pgsched.sessions o
    WHERE o.token = living_session.token AND o.owner <> pgsched.caller();
    SELECT * INTO s FROM pgsched.sessions o
    WHERE o.token = living_session.token AND o.ended_at IS NULL AND o.lease_until > clock_timestamp() FOR KEY SHARE;
    IF s.id IS NULL THEN
        PERFORM pgsched.raise_session_ended();
    END IF;
    RETURN s.id;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.lock_acquire(name text, token uuid, ttl interval DEFAULT '00:00:30'::interval, wait interval DEFAULT '00:00:00'::interval, mode text DEFAULT 'exclusive'::text, capacity integer DEFAULT NULL::integer, note text DEFAULT NULL::text, session uuid DEFAULT NULL::uuid, kind text DEFAULT NULL::text, OUT fence bigint, OUT place bigint, OUT lease_until timestamp with time zone, OUT look_at timestamp with time zone)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    l pgsched.locks;
    s pgsched.sessions;
    mine pgsched.lock_places;
    checked name;  -- the owner with whom the caller may use the name
    wanted text := CASE WHEN capacity IS NULL THEN mode ELSE 'counted' END;
    patience text;
    alone boolean;
    problem text := coalesce(
        CASE WHEN token IS NULL THEN 'token: must not be null' END,
        CASE WHEN mode IN ('exclusive', 'shared') THEN NULL ELSE pgsched.not_one_of('mode', mode, ARRAY['exclusive', 'shared']) END,
        CASE WHEN kind IS NOT NULL THEN pgsched.not_one_of('kind', kind, ARRAY['lock', 'election']) END,
        CASE WHEN capacity NOT BETWEEN 1 AND 10000 THEN pgsched.out_of_range('capacity', capacity, 1, 10000) END,
        CASE WHEN octet_length(note) > 65536 THEN 'note: longer than 64 KiB' END,
        CASE WHEN wait < '0 s' OR wait > '365 days' THEN format('wait: %s is not between 0 and 365 days', wait) END);
BEGIN
    SELECT * INTO l FROM pgsched.locks k WHERE k.name = lock_acquire.name;
    IF l.name IS NULL THEN  -- a name that has a row was checked when the row was made
        problem := coalesce(pgsched.bad_text('name', name, 200), problem);
    END IF;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'locks');
    END IF;
    PERFORM pgsched.check_name('lock', name, l.owner);
    checked := l.owner;
    IF session IS NOT NULL THEN
        PERFORM pgsched.own_session(session);
    END IF;
    PERFORM pgsched.commit_durably();

    -- the row of the lock: what is in line is read only when it is locked
    patience := pgsched.wait_for_rows(coalesce(wait, interval '365 days') + interval '0.2 s');
    l := pgsched.lock_take_row(name, capacity, kind);
    IF l.owner IS DISTINCT FROM checked THEN  -- it was new, or is so again
        PERFORM pgsched.check_name('lock', name, l.owner);
    END IF;
    IF session IS NULL THEN
        -- when the line is locked: it may lock other lines, and who has locked one must not wait for another
        PERFORM pgsched.session_open(token, ttl);
    END IF;
    PERFORM set_config('lock_timeout', patience, true);
    -- the session may have ended meanwhile; from now on its row stays until this transaction ends
    SELECT * INTO s FROM pgsched.sessions o WHERE o.token = coalesce(session, lock_acquire.token) FOR KEY SHARE;
    IF s.id IS NULL OR s.ended_at IS NOT NULL OR s.lease_until <= clock_timestamp() THEN
        PERFORM pgsched.raise_session_ended();
    END IF;
    lease_until := s.lease_until;

    SELECT * INTO mine FROM pgsched.lock_places p WHERE p.token = lock_acquire.token;
    IF mine.token IS NOT NULL AND (mine.lock, mine.session, mine.mode) IS DISTINCT FROM (name, s.id, wanted) THEN
        PERFORM pgsched.raise_bad_value('token: it was used for another lock, mode or session: take a new one', 'locks');
    ELSIF mine.left_at IS NOT NULL THEN
        RETURN;
    ELSIF mine.token IS NULL THEN
        alone := NOT EXISTS (SELECT FROM pgsched.lock_places p WHERE p.lock = lock_acquire.name);
        IF l.capacity IS DISTINCT FROM capacity THEN
            IF NOT alone THEN
                PERFORM pgsched.lock_settle(name);
                alone := NOT EXISTS (SELECT FROM pgsched.lock_places p WHERE p.lock = lock_acquire.name);
            END IF;
            IF NOT alone THEN
                PERFORM pgsched.raise_bad_value(format('capacity: "%s" is in use as %s', name, CASE WHEN l.capacity IS NULL
                    THEN 'a lock' ELSE format('a semaphore of %s: give this limit', l.capacity) END), 'locks');
            END IF;
        END IF;
        UPDATE pgsched.locks k SET last_place = k.last_place + 1, capacity = lock_acquire.capacity
        WHERE k.name = lock_acquire.name RETURNING * INTO l;
        INSERT INTO pgsched.lock_places AS p (lock, place, session, token, mode, note, since, give_up_at, fence, granted_at)
        SELECT lock_acquire.name, l.last_place, s.id, lock_acquire.token, wanted, lock_acquire.note, c.moment,
            CASE WHEN NOT alone THEN c.moment + wait END,
            CASE WHEN alone THEN nextval('pgsched.fences'::regclass) END, CASE WHEN alone THEN c.moment END
        FROM clock_timestamp() AS c(moment)
        RETURNING * INTO mine;
        PERFORM pgsched.check_room(l, s.owner, mine.number);
    END IF;
    IF mine.fence IS NULL THEN
        PERFORM pgsched.lock_settle(name, CASE WHEN alone IS NOT NULL THEN mine.place END);
        SELECT * INTO mine FROM pgsched.lock_places p WHERE p.token = lock_acquire.token;
    END IF;
    IF mine.fence IS NULL AND (wait = '0 s' OR mine.token IS NULL) THEN
        DELETE FROM pgsched.lock_places p WHERE p.token = lock_acquire.token;
        IF session IS NULL THEN
            PERFORM pgsched.session_drop(s.id);
            lease_until := NULL;
        END IF;
        RETURN;
    END IF;
    fence := mine.fence;
    IF fence IS NOT NULL THEN
        place := 1;
        RETURN;
    END IF;
    place := (SELECT count(*) + 1 FROM pgsched.lock_places p WHERE p.lock = lock_acquire.name AND p.place < mine.place AND p.fence IS NULL);
    look_at := CASE WHEN pgsched.lock_is_next(name, mine.place) THEN pgsched.lock_look_at(name) END;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.lock_break(name text, fence bigint DEFAULT NULL::bigint)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    l pgsched.locks;
    broken record;
    count bigint := 0;
BEGIN
    SELECT * INTO l FROM pgsched.locks k WHERE k.name = lock_break.name;
    PERFORM pgsched.check_name('lock', name, l.owner);
    PERFORM pgsched.commit_durably();
    PERFORM FROM pgsched.lock_row(name);
    FOR broken IN
        SELECT p.place, p.session, p.token, p.fence, s.name AS of_session
        FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
        WHERE p.lock = lock_break.name AND p.fence IS NOT NULL AND p.left_at IS NULL
          AND (lock_break.fence IS NULL OR p.fence = lock_break.fence)
        ORDER BY p.place
    LOOP
        count := count + 1;
        PERFORM pgsched.lock_leave(name, broken.place);
        INSERT INTO pgsched.lock_losses VALUES (broken.session, broken.fence) ON CONFLICT DO NOTHING;
        PERFORM pgsched.tell_session(broken.session, broken.token);
        PERFORM pgsched.note('broken', 'lock', name, jsonb_build_object('fence', broken.fence, 'session', broken.of_session));
    END LOOP;
    PERFORM pgsched.lock_settle(name);
    RETURN count;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.lock_is_next(name text, place bigint)
 RETURNS boolean
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT NOT EXISTS (
        SELECT FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
        WHERE p.lock = lock_is_next.name AND p.place < lock_is_next.place AND p.fence IS NULL
          AND s.ended_at IS NULL AND s.lease_until > clock_timestamp() AND (p.give_up_at IS NULL OR p.give_up_at > clock_timestamp()))
$function$;

CREATE OR REPLACE FUNCTION pgsched.lock_leave(name text, place bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    waited boolean;
    told boolean;
BEGIN
    DELETE FROM pgsched.lock_places q WHERE q.lock = lock_leave.name AND q.place = (
        SELECT e.place FROM pgsched.lock_places e WHERE e.lock = lock_leave.name AND e.place = lock_leave.place FOR UPDATE SKIP LOCKED)
    RETURNING q.fence IS NULL INTO waited;
    IF waited IS NULL THEN
        UPDATE pgsched.lock_places q SET left_at = clock_timestamp()
        WHERE q.lock = lock_leave.name AND q.place = lock_leave.place AND q.left_at IS NULL;
        told := FOUND;
    ELSE
        told := waited AND NOT EXISTS (SELECT FROM pgsched.lock_places q
            WHERE q.lock = lock_leave.name AND q.fence IS NULL AND q.place < lock_leave.place);
    END IF;
    IF told THEN
        PERFORM pgsched.tell_session(first.session, first.token) FROM (
            SELECT q.session, q.token FROM pgsched.lock_places q
            WHERE q.lock = lock_leave.name AND q.fence IS NULL ORDER BY q.place LIMIT 1) first;
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.lock_line(name text, most integer DEFAULT 1000)
 RETURNS TABLE(fence bigint, mode text, session text, owner name, note text, since timestamp with time zone, granted_at timestamp with time zone, lease_until timestamp with time zone)
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    RETURN QUERY
    SELECT p.fence, p.mode, s.name, s.owner, p.note, p.since, p.granted_at, s.lease_until
    FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
    WHERE p.lock = lock_line.name AND s.ended_at IS NULL AND s.lease_until > clock_timestamp() AND p.left_at IS NULL
      AND (p.fence IS NOT NULL OR p.give_up_at IS NULL OR p.give_up_at > clock_timestamp())
    ORDER BY p.place LIMIT greatest(0, least(most, 10000));
    -- last: what was read has an owner that this sees
    PERFORM pgsched.check_name('lock', lock_line.name, (SELECT l.owner FROM pgsched.locks l WHERE l.name = lock_line.name))
    WHERE NOT pgsched.reads_all();
END $function$;

CREATE OR REPLACE FUNCTION pgsched.lock_list(prefix text DEFAULT ''::text, after text DEFAULT ''::text, most integer DEFAULT 1000, only_used boolean DEFAULT true, kind text DEFAULT NULL::text)
 RETURNS TABLE(name text, owner name, kind_of text, capacity integer, holders bigint, waiting bigint, holder text, fence bigint, held_since timestamp with time zone, lease_until timestamp with time zone, waiting_since timestamp with time zone, used_at timestamp with time zone)
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.lock_look_at(name text)
 RETURNS timestamp with time zone
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT greatest(min(least(s.lease_until, s.ended_at, p.left_at)), clock_timestamp() + interval '0.2 s')
    FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
    WHERE p.lock = lock_look_at.name AND p.fence IS NOT NULL
$function$;

CREATE OR REPLACE FUNCTION pgsched.lock_position(name text, place bigint)
 RETURNS bigint
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT count(*) + 1 FROM (
        SELECT FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
        WHERE p.lock = lock_position.name AND p.place < lock_position.place AND p.fence IS NULL
          AND s.ended_at IS NULL AND s.lease_until > clock_timestamp() AND (p.give_up_at IS NULL OR p.give_up_at > clock_timestamp())
        LIMIT 99) few
$function$;

CREATE OR REPLACE FUNCTION pgsched.lock_release(name text, token uuid)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    owner name;
    own_session bigint;
    mine record;
BEGIN
    SELECT s.owner, CASE WHEN s.token = p.token THEN s.id END INTO owner, own_session
    FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
    WHERE p.token = lock_release.token AND p.lock = lock_release.name;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pgsched.refuse_others('the session', owner) WHERE owner <> pgsched.caller();
    PERFORM pgsched.commit_durably();
    PERFORM FROM pgsched.lock_row(name);
    SELECT p.place, p.left_at IS NULL AND s.ended_at IS NULL AND s.lease_until > clock_timestamp() AS lives INTO mine
    FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
    WHERE p.token = lock_release.token AND p.lock = lock_release.name;
    IF mine.place IS NOT NULL THEN
        PERFORM pgsched.lock_leave(name, mine.place);
    END IF;
    PERFORM pgsched.lock_settle(name);
    IF own_session IS NOT NULL THEN
        PERFORM pgsched.session_drop(own_session);
    END IF;
    RETURN coalesce(mine.lives, false);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.lock_renew(name text, token uuid)
 RETURNS timestamp with time zone
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT r.lease_until
    FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session CROSS JOIN LATERAL pgsched.session_renew(s.token) r
    WHERE p.token = lock_renew.token AND p.lock = lock_renew.name AND p.fence IS NOT NULL AND p.left_at IS NULL
$function$;

CREATE OR REPLACE FUNCTION pgsched.lock_row(name text)
 RETURNS SETOF pgsched.locks
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    UPDATE pgsched.locks l SET used_at = clock_timestamp() WHERE l.name = lock_row.name RETURNING l.*
$function$;

CREATE OR REPLACE FUNCTION pgsched.lock_settle(name text, asking bigint DEFAULT NULL::bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET enable_sort TO 'off'
AS $function$
DECLARE
    moment timestamptz := clock_timestamp();
    capacity integer;  -- of a semaphore, read when it is needed
    holders integer := 0;
    exclusive boolean := false;
    p record;
BEGIN
    FOR p IN SELECT q.place, q.session, q.token, q.mode, q.fence, q.left_at,
            q.fence IS NULL AND q.give_up_at <= moment AND q.place IS DISTINCT FROM asking AS gave_up, s.ended_at, s.lease_until
        FROM pgsched.lock_places q JOIN pgsched.sessions s ON s.id = q.session
        WHERE q.lock = lock_settle.name ORDER BY q.place
    LOOP
        IF p.ended_at IS NULL AND p.lease_until <= moment THEN
            -- a renewal that was sent in time and is not committed yet has locked the row
            UPDATE pgsched.sessions s SET ended_at = moment WHERE s.id = (
                SELECT e.id FROM pgsched.sessions e WHERE e.id = p.session AND e.ended_at IS NULL AND e.lease_until <= moment
                FOR NO KEY UPDATE SKIP LOCKED) RETURNING s.ended_at INTO p.ended_at;
        END IF;
        IF p.ended_at IS NOT NULL OR p.left_at IS NOT NULL OR p.gave_up THEN
            DELETE FROM pgsched.lock_places q WHERE q.lock = lock_settle.name AND q.place = (
                SELECT e.place FROM pgsched.lock_places e WHERE e.lock = lock_settle.name AND e.place = p.place FOR UPDATE SKIP LOCKED);
            CONTINUE WHEN FOUND OR p.fence IS NULL;
        END IF;
        IF p.fence IS NULL THEN
            IF p.mode = 'counted' AND capacity IS NULL THEN
                SELECT l.capacity INTO capacity FROM pgsched.locks l WHERE l.name = lock_settle.name;
            END IF;
            EXIT WHEN CASE p.mode WHEN 'counted' THEN holders >= capacity WHEN 'exclusive' THEN holders > 0 ELSE exclusive END;
            PERFORM pgsched.commit_durably();
            UPDATE pgsched.lock_places q SET fence = nextval('pgsched.fences'::regclass), granted_at = moment, give_up_at = NULL
            WHERE q.lock = lock_settle.name AND q.place = p.place;
            PERFORM pgsched.tell_session(p.session, p.token);
        END IF;
        holders := holders + 1;
        exclusive := exclusive OR p.mode = 'exclusive';
    END LOOP;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.lock_take_row(name text, capacity integer, kind text)
 RETURNS pgsched.locks
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    l pgsched.locks;
    number bigint;
BEGIN
    LOOP
        UPDATE pgsched.locks k SET used_at = clock_timestamp(), kind = coalesce(lock_take_row.kind, k.kind)
        WHERE k.name = lock_take_row.name RETURNING * INTO l;
        EXIT WHEN FOUND;
        INSERT INTO pgsched.locks AS k (name, owner, capacity) VALUES (lock_take_row.name, pgsched.caller(), lock_take_row.capacity)
        ON CONFLICT DO NOTHING RETURNING k.number INTO number;
        IF number IS NOT NULL AND NOT pgsched.has_room('locks', pgsched.caller(), number, 100000)
            AND NOT pgsched.forget_names(pgsched.caller()) THEN
            PERFORM pgsched.raise_bad_value(format('name: role "%s" has 100000 names of locks that were used within an hour, and may'
                ' have no more', pgsched.caller()), 'locks');
        END IF;
    END LOOP;
    RETURN l;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.make_room(q pgsched.queues)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_sort TO 'off'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.make_run(task text, args jsonb, kind text, queue text, priority integer, delay interval, at timestamp with time zone, unique_key text, max_attempts integer, timeout interval, unique_scope text, on_conflict text, idempotency_key text, idempotency_retention interval, tags text[], after bigint[], after_any bigint[], on_failure text, concurrency_key text, debounce_max interval, kill_after interval, backoff text, backoff_base interval, backoff_max interval, backoff_jitter double precision, expires interval, expires_at timestamp with time zone, keep interval, OUT id bigint, OUT how text)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    due timestamptz;
    expiry timestamptz := make_run.expires_at;
    finds boolean := false;  -- may the unique key lead to a run that stays as it is?
    late text;  -- what is wrong with the expiry of a run that is made now
    problem text;
    policy text := coalesce(make_run.on_conflict, 'return');
    bucket text;  -- null: the unique scope is while_active
    bucket_ends_at timestamptz;
    sliding boolean := false;
    first_task text;
BEGIN
    -- one that is no smallint, and one that leads out of all times, would fail on their way into the row
    IF task IS NULL OR priority NOT BETWEEN 0 AND 9 OR delay NOT BETWEEN '0' AND '6900 years' THEN
        PERFORM pgsched.raise_bad_value(coalesce(CASE WHEN task IS NULL THEN 'task: must not be null' END,
            CASE WHEN delay < '0' THEN format('delay: %s is negative', delay) END, pgsched.out_of_range('priority', coalesce(priority, 5), 0, 9),
            format('delay: %s leads out of the time between 1970 and 9000', delay)), 'runs');
    END IF;
    due := coalesce(make_run.at, clock_timestamp() + delay, clock_timestamp());
    IF coalesce(unique_key, idempotency_key) IS NOT NULL OR tags IS NOT NULL OR policy <> 'return' THEN
        PERFORM pgsched.check_keys(unique_key, policy, idempotency_key, idempotency_retention, tags, due);
    END IF;
    IF expires IS NOT NULL OR expiry IS NOT NULL THEN
        problem := CASE WHEN expires IS NOT NULL AND expiry IS NOT NULL
                THEN 'expires: give either expires or expires_at, not both'
            ELSE coalesce(pgsched.bad_interval('expires', expires, '1 millisecond'), pgsched.bad_instant('at', due),
                pgsched.bad_instant('expires_at', expiry)) END;
        IF expiry <= due THEN  -- a repeated request finds its run all the same
            late := format('expires_at: %s is not later than the run is due', expiry);
            finds := unique_key IS NOT NULL AND policy IN ('return', 'reject');
            problem := coalesce(problem, CASE WHEN idempotency_key IS NULL AND NOT finds THEN late END);
        END IF;
        IF problem IS NOT NULL THEN
            PERFORM pgsched.raise_bad_value(problem, 'runs');
        END IF;
        expiry := coalesce(expiry, least(due + expires, '9000-01-01 00:00Z'));
    END IF;
    IF debounce_max IS NOT NULL AND (policy NOT IN ('replace', 'merge') OR debounce_max < '0') THEN
        PERFORM pgsched.raise_bad_value(coalesce(pgsched.bad_interval('debounce_max', debounce_max, '0'), format(
            'debounce_max: it bounds how far on_conflict replace or merge moves a run; on_conflict is %s', policy)), 'runs');
    END IF;
    IF idempotency_key IS NOT NULL THEN
        SELECT t.run_id, t.by_task INTO make_run.id, first_task FROM pgsched.take_key('idempotency',
            idempotency_key, task, clock_timestamp() + coalesce(idempotency_retention, interval '24 hours')) t;
        IF first_task <> make_run.task THEN
            PERFORM pgsched.raise_bad_value(format('idempotency_key: "%s" was used for run %s of task "%s"',
                left(idempotency_key, 60), make_run.id, left(first_task, 100)), 'runs');
        ELSIF make_run.id IS NOT NULL THEN
            how := 'repeated';
            RETURN;
        END IF;
    END IF;
    IF late IS NOT NULL AND NOT finds THEN
        PERFORM pgsched.raise_bad_value(late, 'runs');
    END IF;
    IF unique_key IS NOT NULL AND unique_scope <> 'while_active' THEN
        IF unique_scope = 'while_queued' THEN
            bucket := unique_scope;
            make_run.id := pgsched.take_queued_key(unique_key, task);
        ELSE
            sliding := starts_with(unique_scope, 'sliding');
            SELECT b.name, b.ends_at INTO bucket, bucket_ends_at FROM pgsched.unique_bucket(unique_scope, due) b;
            -- a bucket's for a day longer than it must: nothing depends on when exactly the bucket is over
            SELECT t.run_id INTO make_run.id FROM pgsched.take_key(bucket, unique_key, task, CASE WHEN sliding
                THEN bucket_ends_at ELSE greatest(bucket_ends_at, clock_timestamp()) + interval '1 day' END) t;
        END IF;
        IF make_run.id IS NOT NULL THEN
            how := coalesce(pgsched.meet_run(make_run.id, policy, task, args, due, expiry, debounce_max), 'existing');
        END IF;
    END IF;
    -- A queue with a max_depth is asked for room, and may cancel a run for it, before the index says that none is needed.
    -- Not in a snapshot of its own, where the run may have ended since.
    IF how IS NULL AND bucket IS NULL AND unique_key IS NOT NULL
        AND current_setting('transaction_isolation') = 'read committed'
        AND EXISTS (SELECT FROM pgsched.queues q WHERE q.name = coalesce(make_run.queue,
                        CASE WHEN coalesce(kind, 'task') = 'task' THEN (pgsched.task_options(task)).queue END, 'default')
                                                   AND q.max_depth IS NOT NULL)
    THEN
        SELECT r.id INTO make_run.id FROM pgsched.runs r
        WHERE r.unique_key = make_run.unique_key AND r.phase < 3 /* open */;
        IF FOUND THEN
            how := pgsched.meet_run(make_run.id, policy, task, args, due, expiry, debounce_max);
        END IF;
    END IF;
    IF late IS NOT NULL AND how IS NULL THEN
        IF bucket IS NULL THEN
            make_run.id := pgsched.run_of_key(unique_key);
            how := CASE WHEN make_run.id IS NOT NULL THEN pgsched.meet_run(make_run.id, policy, task, args, due) END;
        END IF;
        IF how IS NULL THEN
            PERFORM pgsched.raise_bad_value(late, 'runs');
        END IF;
    END IF;
    WHILE how IS NULL LOOP
        INSERT INTO pgsched.runs (task, args, kind, queue, priority, available_at, unique_key, max_attempts, timeout,
                                  idempotency_key, tags, concurrency_key, kill_after, backoff, backoff_base, backoff_max,
                                  backoff_jitter, expires_at, keep)
        VALUES (make_run.task, coalesce(make_run.args, '{}'), coalesce(make_run.kind, 'task'),
                make_run.queue, make_run.priority::smallint, due,
                CASE WHEN bucket IS NULL THEN make_run.unique_key END,
                make_run.max_attempts, make_run.timeout, make_run.idempotency_key,
                make_run.tags, make_run.concurrency_key, make_run.kill_after, make_run.backoff, make_run.backoff_base,
                make_run.backoff_max, make_run.backoff_jitter, expiry, make_run.keep)
        ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND phase < 3 /* open */ DO NOTHING
        RETURNING id INTO make_run.id;
        IF FOUND THEN
            how := 'created';
            PERFORM pgsched.hold_back(make_run.id, after, after_any, coalesce(on_failure, 'cancel'))
            WHERE after IS NOT NULL OR after_any IS NOT NULL;
        ELSE
            make_run.id := pgsched.run_of_key(unique_key);
            -- the run that was in the way may have ended between two statements: then it is tried again
            IF make_run.id IS NOT NULL THEN
                how := pgsched.meet_run(make_run.id, policy, task, args, due, expiry, debounce_max);
            END IF;
        END IF;
    END LOOP;
    IF how = 'rejected' THEN  -- what was refused may be asked for again with the same key
        PERFORM pgsched.bind_key('idempotency', make_run.idempotency_key, NULL) WHERE idempotency_key IS NOT NULL;
    ELSE
        PERFORM pgsched.bind_key('idempotency', make_run.idempotency_key, make_run.id) WHERE idempotency_key IS NOT NULL;
        PERFORM pgsched.bind_key(bucket, make_run.unique_key, make_run.id,
            CASE WHEN sliding THEN make_interval(secs => substr(bucket, 9)::float8) END) WHERE bucket IS NOT NULL;
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.mark_tasks()
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    -- before the sequence is read: a bit that pgsched.register_tasks sets while the table is read must not be lost
    bits bigint := (SELECT bit_or(pgsched.queue_bit(t.task)) FROM pgsched.tasks t WHERE t.options <> '{}');
BEGIN
    PERFORM setval('pgsched.tasks_with_options',
        coalesce(pg_sequence_last_value('pgsched.tasks_with_options'), 0) | coalesce(bits, 0));
END $function$;

CREATE OR REPLACE FUNCTION pgsched.may_be_asleep()
 RETURNS boolean
 LANGUAGE sql
AS $function$
    SELECT (pg_catalog.pg_sequence_last_value('pgsched.asleep_until'::regclass)::float8
        >= pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000::float8) IS TRUE
$function$;

CREATE OR REPLACE FUNCTION pgsched.may_change(owner name)
 RETURNS boolean
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT pg_has_role(c.name, current_user, 'MEMBER')
        OR EXISTS (SELECT FROM pg_roles r WHERE pg_has_role(c.name, r.oid, 'MEMBER')
                   AND r.rolname IN (owner, 'pgsched_operator', 'pgsched_leader'))
    FROM pgsched.caller() AS c(name)
$function$;

CREATE OR REPLACE FUNCTION pgsched.may_declare(what text, name text)
 RETURNS boolean
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF what = 'job' THEN
        RETURN EXISTS (SELECT FROM pgsched.jobs j WHERE j.name = may_declare.name AND j.owner = ANY (pgsched.my_roles()));
    ELSIF what = 'calendar' THEN  -- a query of its own: not every role may read calendars
        RETURN EXISTS (SELECT FROM pgsched.calendars c WHERE c.name = may_declare.name AND c.owner = ANY (pgsched.my_roles()));
    END IF;
    RETURN false;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.may_go_on(j pgsched.jobs)
 RETURNS boolean
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT coalesce(j.next_run_at IS NULL AND j.error IS NULL AND j.schedule IS NOT NULL AND j.ends_at > clock_timestamp()
        AND (j.on_excluded <> 'skip' OR j.shifts IS NOT NULL) AND (j.max_runs IS NULL OR j.run_count < j.max_runs), false)
$function$;

CREATE OR REPLACE FUNCTION pgsched.may_lead()
 RETURNS boolean
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT pg_has_role((SELECT relowner FROM pg_class WHERE oid = 'pgsched.runs'::regclass), 'USAGE')
        OR EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'pgsched_leader' AND pg_has_role(r.oid, 'USAGE'))
$function$;

CREATE OR REPLACE FUNCTION pgsched.may_use(name text, owner name)
 RETURNS boolean
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN NOT EXISTS (SELECT FROM pgsched.name_grants g WHERE starts_with(may_use.name, g.prefix))
            THEN may_use.owner IS NULL OR may_use.owner = pgsched.caller() OR pgsched.may_change(may_use.owner)
        ELSE pgsched.may_change(NULL) OR EXISTS (
            SELECT FROM pgsched.name_grants g JOIN pg_roles r ON r.rolname = g.role
            WHERE starts_with(may_use.name, g.prefix) AND pg_has_role(pgsched.caller(), r.oid, 'MEMBER')) END
$function$;

CREATE OR REPLACE FUNCTION pgsched.may_use_file(role name)
 RETURNS boolean
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = $1)
        OR EXISTS (SELECT FROM pg_roles r WHERE r.rolname = $1 AND pg_has_role(current_user, r.oid, 'MEMBER'))
        OR EXISTS (SELECT FROM pg_roles o JOIN pg_roles r ON r.rolname = $1
                   WHERE o.rolname = 'pgsched_operator' AND pg_has_role(current_user, o.oid, 'MEMBER')
                     AND pg_has_role(r.oid, o.oid, 'MEMBER'))
$function$;

CREATE OR REPLACE FUNCTION pgsched.meet_run(existing bigint, on_conflict text, task text, args jsonb, due timestamp with time zone, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, debounce_max interval DEFAULT NULL::interval)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    r pgsched.runs;
    moves boolean := on_conflict = 'replace' OR on_conflict = 'merge' AND debounce_max IS NOT NULL;
    new_args jsonb := args;
    new_due timestamptz;
    later boolean;
    held boolean;
    problem text;
BEGIN
    IF on_conflict = 'reject' THEN
        RETURN 'rejected';
    ELSIF on_conflict = 'return' THEN
        RETURN 'existing';
    END IF;
    problem := coalesce(pgsched.not_one_of('on_conflict', on_conflict, ARRAY['replace', 'keep_time', 'merge']), CASE
        WHEN due IS NULL THEN 'at: must not be null'
        WHEN due >= '8998-01-01 00:00Z' THEN  -- the leader's markers
            format('at: %s is not an instant between 1970 and 8997', due)
        ELSE pgsched.bad_instant('at', due) END, pgsched.bad_instant('expires_at', expires_at),
        pgsched.bad_interval('debounce_max', debounce_max, '0'));
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    PERFORM pgsched.refuse_others(format('run %s, which has the key,', o.id), o.owner) FROM pgsched.runs o WHERE o.id = existing;
    SELECT * INTO r FROM pgsched.runs WHERE id = existing FOR NO KEY UPDATE;
    PERFORM pgsched.refuse_others(format('run %s, which has the key,', r.id), r.owner) WHERE r.id IS NOT NULL;
    IF r.id IS NULL OR r.phase >= 3 /* ended */ THEN
        RETURN NULL;
    ELSIF r.task <> meet_run.task THEN
        PERFORM pgsched.raise_bad_value(format('unique_key: run %s has it, of task "%s": it cannot take the payload of'
            ' another', r.id, left(r.task, 100)), 'runs');
    ELSIF r.state = 'running' THEN
        RETURN 'existing';
    END IF;
    IF on_conflict = 'merge' THEN
        IF jsonb_typeof(r.args) IS DISTINCT FROM 'object' OR jsonb_typeof(args) IS DISTINCT FROM 'object' THEN
            PERFORM pgsched.raise_bad_value(
                'on_conflict: merge is for arguments by name; these are a list: use replace or keep_time', 'runs');
        END IF;
        new_args := r.args || (SELECT coalesce(jsonb_object_agg(n.key, CASE
                WHEN jsonb_typeof(n.value) = 'array' AND jsonb_typeof(r.args -> n.key) = 'array'
                THEN (r.args -> n.key) || n.value ELSE n.value END), '{}') FROM jsonb_each(args) n);
    END IF;
    new_due := coalesce(least(due, r.created_at + debounce_max), due);
    held := r.state = 'waiting' AND r.available_at >= '8998-01-01 00:00Z';
    later := moves AND new_due > clock_timestamp()
        AND (r.state = 'queued' OR r.state = 'waiting' AND r.ready_at IS NOT NULL);
    UPDATE pgsched.runs SET args = new_args,
        -- one that waits for other runs keeps its marker (43_dependencies.sql)
        available_at = CASE WHEN moves AND NOT held THEN new_due ELSE available_at END,
        options = CASE WHEN moves AND held
                       THEN coalesce(options, '{}') || jsonb_build_object('not_before', new_due) ELSE options END,
        -- the way back to queued is the leader's; ready_at: only limits hold it
        state = CASE WHEN later THEN 'scheduled' ELSE r.state END,
        ready_at = CASE WHEN NOT later THEN r.ready_at END
    WHERE id = r.id;
    -- a new time has a new expiry: what the call says, or else the task; one that has started once has none
    IF moves AND r.started_at IS NULL AND (r.expires_at IS NOT NULL OR meet_run.expires_at IS NOT NULL) THEN
        UPDATE pgsched.runs SET expires_at = coalesce(meet_run.expires_at, new_due + make_interval(secs =>
            ((pgsched.task_options(r.task)).more ->> 'expires')::float8)) WHERE id = r.id;
    END IF;
    IF r.owner <> pgsched.caller() THEN  -- as an operator, say, who may change anybody's
        PERFORM pgsched.note('changed', 'run', r.id::text, pgsched.audited_change(
            jsonb_build_object('args', r.args, 'available_at', r.available_at),
            (SELECT jsonb_build_object('args', n.args, 'available_at', n.available_at) FROM pgsched.runs n WHERE n.id = r.id)));
    END IF;
    IF moves THEN
        PERFORM pgsched.tell_leader();
    END IF;
    RETURN 'replaced';
END $function$;

CREATE OR REPLACE FUNCTION pgsched.my_roles()
 RETURNS name[]
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT array_agg(rolname) FROM pg_roles WHERE pg_has_role(oid, 'MEMBER')
$function$;

CREATE OR REPLACE FUNCTION pgsched.name_of_job(id bigint)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT j.name FROM pgsched.jobs j WHERE j.id = name_of_job.id
$function$;

CREATE OR REPLACE FUNCTION pgsched.newest_slot(job_id bigint)
 RETURNS timestamp with time zone
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT greatest(r.scheduled_at, r.covers_until) FROM pgsched.runs r WHERE r.job_id = newest_slot.job_id
    ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 1
$function$;

CREATE OR REPLACE FUNCTION pgsched.next_slot(j pgsched.jobs)
 RETURNS timestamp with time zone
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN j.paused OR j.error IS NOT NULL OR j.next_run_at IS NULL THEN NULL
        WHEN ltrim(j.schedule, E' \t') ILIKE '@after%' THEN
            -- while a run is open it is when the leader looks again, and no slot
            CASE WHEN NOT EXISTS (SELECT FROM pgsched.runs r WHERE r.job_id = j.id AND r.phase < 3 /* open */)
                 AND j.next_run_at > clock_timestamp() THEN j.next_run_at END
        ELSE (SELECT k.slot FROM pgsched.known_slots(j) k WHERE k.excluded IS NULL ORDER BY k.slot LIMIT 1) END
$function$;

CREATE OR REPLACE FUNCTION pgsched.no_leader(beginning text)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN EXISTS (SELECT FROM pgsched.leader l WHERE l.resigned_at IS NULL
                             AND l.seen_at > clock_timestamp() - interval '5 seconds') THEN ''
        ELSE beginning || 'no process leads now (start a pgsched worker)' END
$function$;

CREATE OR REPLACE FUNCTION pgsched.node_add(key text, value jsonb, session bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    version bigint := pgsched.store_write(pgsched.store_root(key), key, value, session);
    parent text := pgsched.node_parent(key);
BEGIN
    INSERT INTO pgsched.store_nodes AS n (key, made_at) VALUES (node_add.key, version)
    ON CONFLICT ON CONSTRAINT store_nodes_pkey DO UPDATE SET made_at = excluded.made_at, children = 0;  -- of a session that has ended
    INSERT INTO pgsched.store_nodes AS n (key, made_at, children)
    SELECT k.key, k.version, 1 FROM pgsched.store k WHERE k.key = parent
    ON CONFLICT ON CONSTRAINT store_nodes_pkey DO UPDATE SET children = n.children + 1;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.node_children(key text, listed boolean, OUT names text[], OUT count bigint)
 RETURNS record
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT coalesce(array_agg(c.name ORDER BY c.name) FILTER (WHERE listed), '{}'), count(*)
    FROM (SELECT DISTINCT split_part(substr(k.key, length(node_children.key) + 2), '/', 1) COLLATE "C" AS name FROM pgsched.store k
          WHERE k.key > (node_children.key || '/') COLLATE "C" AND k.key < (node_children.key || '0') COLLATE "C"
            AND pgsched.session_lives(k.session)) c
    WHERE c.name <> ''
$function$;

CREATE OR REPLACE FUNCTION pgsched.node_create(parent text, name text, value jsonb, session uuid DEFAULT NULL::uuid, sequence boolean DEFAULT false, makepath boolean DEFAULT false, OUT problem text, OUT key text)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    above text := '';
    element text;
    number bigint;
    of_session bigint;
BEGIN
    key := concat_ws('/', parent, name);
    PERFORM pgsched.check_key(key || CASE WHEN sequence THEN '0000000000' ELSE '' END);
    IF name IS NULL OR strpos(name, '/') > 0 OR name = '' AND NOT sequence OR parent IS NULL AND sequence OR parent ~ '//|/$' THEN
        PERFORM pgsched.raise_bad_value('name: expected one element of a path, and a parent for a sequence', 'store');
    END IF;
    PERFORM pgsched.check_value(value);
    IF NOT makepath AND parent IS NOT NULL AND NOT pgsched.node_exists(parent) THEN
        problem := 'no_node';  -- before there is a root, which would belong to the caller
        RETURN;
    END IF;
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);
    IF NOT makepath AND parent IS NOT NULL AND NOT pgsched.node_exists(parent) THEN
        problem := 'no_node';
        RETURN;
    END IF;
    FOREACH element IN ARRAY string_to_array(coalesce(parent, ''), '/') LOOP
        above := concat_ws('/', nullif(above, ''), element);
        SELECT k.session INTO of_session FROM pgsched.store k WHERE k.key = above;
        IF NOT FOUND THEN
            IF NOT pgsched.node_has_children(above) THEN  -- else it is there already, and only gets a key
                PERFORM pgsched.check_key(above);
            END IF;
            PERFORM pgsched.node_add(above, '""', NULL);
        ELSIF of_session IS NOT NULL THEN
            problem := 'no_children';
            RETURN;
        END IF;
    END LOOP;
    IF sequence THEN
        SELECT coalesce(max(n.children), 0) INTO number FROM pgsched.store_nodes n WHERE n.key = parent;
        LOOP
            key := concat_ws('/', parent, name || lpad(number::text, greatest(10, length(number::text)), '0'));
            EXIT WHEN NOT EXISTS (SELECT FROM pgsched.store k WHERE k.key = node_create.key);
            number := number + 1;
        END LOOP;
    ELSIF EXISTS (SELECT FROM pgsched.store k WHERE k.key = node_create.key AND pgsched.session_lives(k.session)) THEN
        problem := 'exists';
        RETURN;
    END IF;
    PERFORM pgsched.node_add(key, value, pgsched.living_session(session));
END $function$;

CREATE OR REPLACE FUNCTION pgsched.node_delete(key text, expected bigint DEFAULT NULL::bigint)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    found pgsched.store;
BEGIN
    PERFORM pgsched.check_key(key);
    IF NOT pgsched.node_exists(key) THEN
        RETURN 'no_node';
    END IF;
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);
    SELECT * INTO found FROM pgsched.store k WHERE k.key = node_delete.key AND pgsched.session_lives(k.session);
    IF NOT pgsched.node_exists(key) THEN
        RETURN 'no_node';
    ELSIF expected <> coalesce(found.revision - 1, 0) THEN
        RETURN 'bad_version';
    ELSIF pgsched.node_has_children(key) THEN
        RETURN 'not_empty';
    END IF;
    PERFORM pgsched.store_write(pgsched.store_root(key), key, NULL, NULL);
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.node_exists(key text)
 RETURNS boolean
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT EXISTS (SELECT FROM pgsched.store k WHERE k.key = node_exists.key AND pgsched.session_lives(k.session))
        OR pgsched.node_has_children(node_exists.key)
$function$;

CREATE OR REPLACE FUNCTION pgsched.node_has_children(key text)
 RETURNS boolean
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT EXISTS (SELECT FROM pgsched.store k
        WHERE k.key > (node_has_children.key || '/') COLLATE "C" AND k.key < (node_has_children.key || '0') COLLATE "C"
          AND pgsched.session_lives(k.session))
$function$;

CREATE OR REPLACE FUNCTION pgsched.node_parent(key text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN strpos(key, '/') > 0 THEN left(key, -strpos(reverse(key), '/')) END
$function$;

CREATE OR REPLACE FUNCTION pgsched.node_prune(key text)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    one text;
    count bigint := 0;
BEGIN
    PERFORM pgsched.check_key(key);
    IF NOT pgsched.node_exists(key) THEN
        RETURN 0;
    END IF;
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);
    FOR one IN SELECT k.key FROM pgsched.store k
        WHERE k.key = node_prune.key OR k.key > (node_prune.key || '/') COLLATE "C" AND k.key < (node_prune.key || '0') COLLATE "C"
        ORDER BY k.key DESC LIMIT 1000
    LOOP
        PERFORM pgsched.check_key(one);  -- a part may be granted to others: then nothing is deleted
        PERFORM pgsched.store_write(pgsched.store_root(key), one, NULL, NULL);
        count := count + 1;
    END LOOP;
    RETURN count;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.node_read(key text, listed boolean DEFAULT false, OUT upto bigint, OUT is_there boolean, OUT value jsonb, OUT version bigint, OUT made_at bigint, OUT changed_in bigint, OUT created_at timestamp with time zone, OUT changed_at timestamp with time zone, OUT session bigint, OUT children_made bigint, OUT children text[], OUT child_count bigint)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    -- one statement, so that all is of one moment
    SELECT coalesce(r.version, 0), k.key IS NOT NULL OR c.count > 0, k.value, coalesce(k.revision - 1, 0), coalesce(n.made_at, k.version, 0),
        coalesce(k.version, 0), k.created_at, k.changed_at, k.session, coalesce(n.children, 0),
        ARRAY(SELECT o.name FROM unnest(c.names) o(name)
              WHERE pgsched.reads_all() OR pgsched.may_use(left(node_read.key || '/' || o.name, 200), r.owner)), c.count
    INTO upto, is_there, value, version, made_at, changed_in, created_at, changed_at, session, children_made, children, child_count
    FROM (SELECT) one
    LEFT JOIN pgsched.store_roots r ON r.root = pgsched.store_root(node_read.key)
    LEFT JOIN pgsched.store k ON k.key = node_read.key AND pgsched.session_lives(k.session)
    LEFT JOIN pgsched.store_nodes n ON n.key = node_read.key
    CROSS JOIN pgsched.node_children(node_read.key, listed) c;
    IF NOT pgsched.reads_all() THEN
        PERFORM pgsched.check_key(key);  -- last: what was read has an owner that this sees
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.node_roots(OUT names text[])
 RETURNS text[]
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT coalesce(array_agg(r.root ORDER BY r.root), '{}') FROM pgsched.store_roots r
    WHERE (pgsched.reads_all() OR pgsched.may_use(r.root || '/', r.owner))
      AND EXISTS (SELECT FROM pgsched.store k WHERE k.root = r.root AND pgsched.session_lives(k.session))
$function$;

CREATE OR REPLACE FUNCTION pgsched.node_set(key text, value jsonb, expected bigint DEFAULT NULL::bigint)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    found pgsched.store;
BEGIN
    PERFORM pgsched.check_key(key);
    PERFORM pgsched.check_value(value);
    IF NOT pgsched.node_exists(key) THEN
        RETURN 'no_node';
    END IF;
    PERFORM pgsched.store_lock(pgsched.store_root(key));
    PERFORM pgsched.check_key(key);
    SELECT * INTO found FROM pgsched.store k WHERE k.key = node_set.key AND pgsched.session_lives(k.session);
    IF found.key IS NULL AND NOT pgsched.node_exists(key) THEN
        RETURN 'no_node';
    ELSIF expected <> coalesce(found.revision - 1, 0) THEN
        RETURN 'bad_version';
    ELSIF found.key IS NULL THEN
        PERFORM pgsched.node_add(key, '""', NULL);
    END IF;
    PERFORM pgsched.store_write(pgsched.store_root(key), key, value, found.session);
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.not_before_of(options jsonb)
 RETURNS timestamp with time zone
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET "DateStyle" TO 'ISO, YMD'
 SET standard_conforming_strings TO 'on'
AS $function$
BEGIN
    IF options ->> 'not_before' ~ '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:\d\d(:\d\d)?)?)$' THEN
        RETURN (options ->> 'not_before')::timestamptz;
    END IF;
    RETURN NULL;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.not_one_of(field text, value text, allowed text[])
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN value = ANY (allowed) THEN NULL
           WHEN value IS NULL THEN format('%s: must not be null', field)
           ELSE format('%s: "%s" is not one of %s', field, left(value, 60), array_to_string(allowed, ', ')) END
$function$;

CREATE OR REPLACE FUNCTION pgsched.note(action text, what text, name text, change jsonb DEFAULT NULL::jsonb)
 RETURNS void
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    INSERT INTO pgsched.audit (action, what, name, change, acting_as, for_user)
    VALUES ($1, $2, $3, $4, nullif(current_setting('role'), 'none'), pgsched.acting_for())
$function$;

CREATE OR REPLACE FUNCTION pgsched.notify(channel text, payload text)
 RETURNS text
 LANGUAGE sql
AS $function$
    SELECT CASE WHEN pg_catalog.pg_notification_queue_usage() < 0.5::float8
        THEN nullif(pg_catalog.pg_notify(channel, payload)::text, ''::text) END
$function$;

CREATE OR REPLACE FUNCTION pgsched.offered_tasks()
 RETURNS text[]
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT ARRAY(SELECT DISTINCT t.name FROM pgsched.workers w CROSS JOIN LATERAL unnest(w.tasks) t(name)
        WHERE w.stopped_at IS NULL AND w.stopping_at IS NULL AND w.seen_at > clock_timestamp() - w.lease ORDER BY t.name LIMIT 10000)
$function$;

CREATE OR REPLACE FUNCTION pgsched.other_owner(app text)
 RETURNS name
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT t.owner FROM pgsched.tasks t WHERE t.app = other_owner.app AND t.owner <> pgsched.caller() AND EXISTS (
        SELECT FROM pg_roles r WHERE r.rolname = t.owner AND NOT pg_has_role(pgsched.caller(), r.oid, 'MEMBER')) LIMIT 1
$function$;

CREATE OR REPLACE FUNCTION pgsched.out_of_range(field text, value numeric, low numeric, high numeric)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN value BETWEEN low AND high THEN NULL
           WHEN value IS NULL THEN format('%s: must not be null', field)
           ELSE format('%s: %s is out of range %s-%s', field, value, low, high) END
$function$;

CREATE OR REPLACE FUNCTION pgsched.outside_name(number bigint, made_at timestamp with time zone, reruns integer DEFAULT NULL::integer)
 RETURNS text
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT concat_ws('-', i.database, number, (extract(epoch FROM made_at) * 1000000)::bigint, nullif(reruns, 0))
    FROM pgsched.identity i
$function$;

CREATE OR REPLACE FUNCTION pgsched.own_session(token uuid)
 RETURNS pgsched.sessions
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    s pgsched.sessions;
BEGIN
    SELECT * INTO s FROM pgsched.sessions o WHERE o.token = own_session.token;
    PERFORM pgsched.refuse_others('the session', s.owner) WHERE s.owner <> pgsched.caller();
    IF s.id IS NULL OR s.ended_at IS NOT NULL OR s.lease_until <= clock_timestamp() THEN
        PERFORM pgsched.raise_session_ended();
    END IF;
    RETURN s;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.pass_over(j pgsched.jobs, moment timestamp with time zone, edited boolean)
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    INSERT INTO pgsched.passed_over (job_id, schedule, timezone, anchor_at, after_at, until_at, state, reason,
        calendar, on_excluded, shifts)
    SELECT j.id, j.schedule, j.timezone, j.anchor_at, s.after_at, s.until_at, s.state, s.reason ||
        CASE WHEN edited AND (j.paused OR j.error IS NOT NULL) THEN format('; then %s was edited', what) ELSE '' END,
        j.calendar, j.on_excluded, j.shifts
    FROM (SELECT
        greatest(j.decided_until, j.starts_at - interval '1 microsecond',
                 CASE WHEN j.schedule IS NULL THEN j.run_at - interval '1 microsecond' END) AS begun,
        least(moment, j.ends_at, CASE WHEN j.schedule IS NULL AND j.run_at <= moment THEN j.run_at END) AS ended,
        CASE WHEN j.paused THEN coalesce(j.paused_at, '-infinity') - interval '1 microsecond'
             ELSE 'infinity' END AS paused_from,
        format('%s by %s%s', pgsched.utc(j.paused_at), j.paused_by, coalesce(': ' || j.paused_reason, '')) AS pause,
        CASE WHEN j.schedule IS NULL THEN 'run_at' ELSE 'the schedule' END AS what
    ) x CROSS JOIN LATERAL (VALUES
        (begun, least(ended, paused_from), 'missed',
         CASE WHEN j.error IS NOT NULL THEN format('the job was in error since %s: %s', pgsched.utc(j.error_at), j.error)
              WHEN j.paused THEN 'not decided before the job was paused at ' || pause
              ELSE what || ' was edited before this slot was decided' END),
        (greatest(begun, paused_from), ended, 'skipped', 'paused since ' || pause)
    ) s(after_at, until_at, state, reason)
    WHERE (j.next_run_at <= moment OR j.error IS NOT NULL) AND s.after_at < s.until_at
$function$;

CREATE OR REPLACE FUNCTION pgsched.pass_over_ahead(edited pgsched.jobs, moment timestamp with time zone)
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    INSERT INTO pgsched.passed_over (job_id, schedule, timezone, anchor_at, after_at, until_at, state, reason,
        calendar, on_excluded, shifts)
    SELECT edited.id, edited.schedule, edited.timezone, edited.anchor_at, s.after_at, s.until_at, 'skipped',
        format('the schedule was edited at %s while the clock stood before %s, until which slots are decided',
               pgsched.utc(moment), pgsched.utc(edited.decided_until)),
        edited.calendar, edited.on_excluded, edited.shifts
    FROM (SELECT greatest(moment, edited.starts_at - interval '1 microsecond') AS after_at,
                 least(edited.decided_until, edited.ends_at) AS until_at) s
    WHERE s.after_at < s.until_at
$function$;

CREATE OR REPLACE FUNCTION pgsched.pass_over_end(j pgsched.jobs, edited pgsched.jobs, moment timestamp with time zone)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    used_up boolean := coalesce(j.run_count >= j.max_runs, false);
    begun timestamptz := greatest(j.decided_until, j.starts_at - interval '1 microsecond');
    ended timestamptz := CASE WHEN used_up THEN begun ELSE greatest(begun, j.ends_at) END;
    until timestamptz := least(moment, edited.ends_at);
BEGIN
    IF j.run_count >= edited.max_runs OR edited.ends_at <= ended THEN
        RETURN false;
    END IF;
    INSERT INTO pgsched.passed_over (job_id, schedule, timezone, anchor_at, after_at, until_at, state, reason,
        calendar, on_excluded, shifts)
    SELECT j.id, j.schedule, j.timezone, j.anchor_at, ended, until, 'skipped',
        format('the job had ended: its %s; it was extended at %s',
               CASE WHEN used_up THEN format('max_runs was %s', j.max_runs)
                    ELSE 'ends_at was ' || pgsched.utc(j.ends_at) END, pgsched.utc(moment)),
        j.calendar, j.on_excluded, j.shifts
    WHERE ended < until;
    RETURN true;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.pause_failing(n integer)
 RETURNS TABLE(id bigint, job text, reason text, error text)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    j record;
BEGIN
    PERFORM set_config('pgsched.watches', 'on', true);  -- for pgsched.audit_alerts: the pause itself is in the audit
    FOR j IN
        SELECT o.id, o.name, o.alert_to, f.run_id, format('%s of its runs in a row failed (pause_after_failures), the last,'
            ' run %s, with: %s', o.pause_after_failures, f.run_id, left(f.error, 1000)) AS why
        FROM pgsched.jobs o CROSS JOIN LATERAL (
            SELECT count(*) FILTER (WHERE e.state = 'dead') AS dead, (array_agg(e.id ORDER BY e.scheduled_at DESC))[1] AS run_id,
                (array_agg(coalesce(e.error, e.reason) ORDER BY e.scheduled_at DESC))[1] AS error
            FROM (
                SELECT s.* FROM (
                    SELECT r.id, r.state, r.scheduled_at, r.finished_at, r.error, r.reason, r.origin FROM pgsched.runs r
                    WHERE r.job_id = o.id ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 2000) s
                WHERE s.state IN ('succeeded', 'dead') AND s.origin <> 'backfill'
                    AND s.finished_at > coalesce(o.resumed_at, '-infinity') LIMIT o.pause_after_failures) e) f
        WHERE o.pause_after_failures IS NOT NULL AND NOT o.paused AND o.mode = 'run' AND f.dead = o.pause_after_failures
        ORDER BY random() LIMIT n FOR NO KEY UPDATE OF o SKIP LOCKED
    LOOP
        pause_failing.id := j.id;
        pause_failing.job := j.name;
        pause_failing.reason := j.why;
        pause_failing.error := NULL;
        BEGIN
            UPDATE pgsched.jobs o SET paused = true, paused_by = 'pgsched', paused_reason = j.why WHERE o.id = j.id;
            INSERT INTO pgsched.alerts (job_id, job, kind, run_id, details, alert_to)
            SELECT j.id, j.name, 'paused', j.run_id, 'it has paused itself: ' || j.why, coalesce(j.alert_to, (
                SELECT d.alert_to FROM pgsched.alert_defaults d))
            ON CONFLICT (job_id, kind) WHERE closed_at IS NULL DO NOTHING;
        EXCEPTION WHEN OTHERS THEN
            pause_failing.error := left(SQLERRM, 1000);
        END;
        RETURN NEXT;
    END LOOP;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.pauses_notify()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM pgsched.notify('pgsched_runs',
        CASE WHEN OLD.what IN ('queue', 'limit') THEN pgsched.queue_mark(OLD.name) ELSE '' END);
    PERFORM pgsched.notify('pgsched_leader', 'limits');
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.phase_of(state text)
 RETURNS smallint
 LANGUAGE sql
 IMMUTABLE
AS $function$
    SELECT CASE state WHEN 'waiting' THEN 0 WHEN 'scheduled' THEN 1 WHEN 'queued' THEN 2 WHEN 'running' THEN 2
        WHEN 'dead' THEN 4 WHEN 'missed' THEN 4 ELSE 3 END::smallint
$function$;

CREATE OR REPLACE FUNCTION pgsched.preview(job text, n integer DEFAULT 5)
 RETURNS TABLE(slot timestamp with time zone, local text, note text)
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    j pgsched.jobs := pgsched.job_named(preview.job);
    why text := pgsched.job_stands(j);
BEGIN
    PERFORM pgsched.refuse_many(preview.n, 10, ': `pgsched job preview` shows more');
    IF why IS NULL AND ltrim(j.schedule, E' \t') ILIKE '@after%' THEN
        why := 'its slots depend on when runs end, so none can be foreseen';
    END IF;
    IF why IS NULL THEN
        RETURN QUERY
        WITH ahead AS (
            SELECT k.*, count(*) FILTER (WHERE k.excluded IS NULL) OVER w AS runs_so_far,
                row_number() OVER w AS place, count(*) OVER () AS places
            FROM pgsched.known_slots(j) k WINDOW w AS (ORDER BY k.slot)
        )
        SELECT a.slot, pgsched.wall_clock(a.slot, a.east), nullif(concat_ws('; ',
            CASE WHEN a.slot <= clock_timestamp() THEN 'it is due, and not decided yet' END,
            'it will be skipped: ' || a.excluded,
            'the schedule has it at ' || pgsched.wall_clock(a.nominal, pgsched.east_of_utc(a.nominal, j.timezone)),
            CASE WHEN j.run_count + a.runs_so_far = j.max_runs AND a.excluded IS NULL
                 THEN format('the last one: the max_runs of the job is %s', j.max_runs)
                 WHEN j.schedule IS NOT NULL AND a.place = a.places AND EXISTS (
                     SELECT FROM pgsched.next_slots k WHERE k.job_id = j.id
                     AND (k.refresh_at IS NULL OR k.slots[cardinality(k.slots)] > j.ends_at))
                 THEN coalesce('the last one: the ends_at of the job is ' || pgsched.utc(j.ends_at), 'the last one of the schedule')
                 END), '')
        FROM ahead a
        -- a slot on an excluded date is no run: those behind the last run are left out with it
        WHERE j.max_runs IS NULL OR j.run_count + a.runs_so_far < j.max_runs
            OR j.run_count + a.runs_so_far = j.max_runs AND a.excluded IS NULL
        ORDER BY a.slot LIMIT preview.n;
        IF FOUND THEN
            RETURN;
        END IF;
        why := 'not planned yet: no slot of this schedule is known' || pgsched.no_leader('; ');
    END IF;
    RETURN QUERY SELECT NULL::timestamptz, NULL::text, why;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.prune_audit(n integer)
 RETURNS bigint
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    WITH old AS (
        SELECT id FROM pgsched.audit
        WHERE at < clock_timestamp() - (SELECT keep_audit FROM pgsched.retention) ORDER BY at LIMIT n
    ), gone AS (
        DELETE FROM pgsched.audit a USING old WHERE a.id = old.id RETURNING a.id
    )
    SELECT count(*) FROM gone
$function$;

CREATE OR REPLACE FUNCTION pgsched.prune_locks(after text, most integer)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.prune_roots(after text, most integer)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.queue_bit(queue text)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT 1::bigint << mod(hashtext(queue) & 2147483647, 61)
$function$;

CREATE OR REPLACE FUNCTION pgsched.queue_depth(queue text, most bigint)
 RETURNS bigint
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_sort TO 'off'
AS $function$
    SELECT count(*) FROM (
        (SELECT FROM pgsched.runs r WHERE r.phase = 2 /* claimable */ AND r.queue = $1 AND r.state = 'queued'
         ORDER BY r.queue, r.priority LIMIT $2)
        UNION ALL
        (SELECT FROM pgsched.runs r WHERE r.phase = 0 /* waiting */ AND r.ready_at IS NOT NULL AND r.queue = $1
         ORDER BY r.queue, coalesce(r.concurrency_key, '') LIMIT $2)) d
$function$;

CREATE OR REPLACE FUNCTION pgsched.queue_mark(queue text)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
    SELECT pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(queue, 'UTF8')), 'hex'), 16)
$function$;

CREATE OR REPLACE FUNCTION pgsched.queue_of(j pgsched.jobs)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
    SELECT coalesce(j.queue,
        CASE WHEN j.kind = 'task' AND pgsched.has_options(j.task) THEN (pgsched.task_options(j.task)).queue END, 'default')
$function$;

CREATE OR REPLACE FUNCTION pgsched.queues_gate()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.raise_bad_value(problem text, relation text)
 RETURNS void
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = problem,
        COLUMN = split_part(problem, ':', 1), TABLE = relation, SCHEMA = 'pgsched';
END $function$;

CREATE OR REPLACE FUNCTION pgsched.raise_session_ended()
 RETURNS void
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'PS410', MESSAGE = 'the session has ended: it was not renewed in time, or it was closed;'
        ' what it held is free for others; open a session with a new token';
END $function$;

CREATE OR REPLACE FUNCTION pgsched.reads_all()
 RETURNS boolean
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT pgsched.may_change(NULL) OR EXISTS (
        SELECT FROM pg_roles r WHERE r.rolname = 'pgsched_viewer' AND pg_has_role(pgsched.caller(), r.oid, 'MEMBER'))
$function$;

CREATE OR REPLACE FUNCTION pgsched.rebuild_flags()
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.recent_runs(job text DEFAULT NULL::text, n integer DEFAULT 20)
 RETURNS TABLE(run bigint, of_job text, task text, slot timestamp with time zone, state text, started timestamp with time zone, finished timestamp with time zone, took interval, late interval, attempts integer, worker text, why text)
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    found_id bigint;
    -- row security is a filter: without this bound a role with few runs would read all that there are
    above bigint := CASE WHEN row_security_active('pgsched.runs')
        THEN coalesce(pg_sequence_last_value('pgsched.runs_id_seq'), 0) - 100000 ELSE 0 END;
BEGIN
    PERFORM pgsched.refuse_many(recent_runs.n, 1000);
    IF recent_runs.job IS NOT NULL THEN
        found_id := (pgsched.job_named(recent_runs.job)).id;
        RETURN QUERY SELECT f.* FROM (
            SELECT r.id FROM pgsched.runs r WHERE r.job_id = found_id
            ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT recent_runs.n) i
            CROSS JOIN LATERAL pgsched.run_figures(i.id) f ORDER BY f.slot DESC;
    ELSE
        RETURN QUERY SELECT f.* FROM (
            SELECT r.id FROM pgsched.runs r WHERE r.id > above ORDER BY r.id DESC LIMIT recent_runs.n) i
            CROSS JOIN LATERAL pgsched.run_figures(i.id) f ORDER BY f.run DESC;
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.refuse_keep()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    problem text := pgsched.keep_error(NEW.keep);
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, TG_TABLE_NAME);
    END IF;
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.refuse_many(n integer, most integer, more text DEFAULT ''::text)
 RETURNS void
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    problem text := pgsched.out_of_range('n', n, 1, most);
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem || more, 'runs');
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.refuse_others(what text, owner name)
 RETURNS void
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF NOT pgsched.may_change(owner) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE =
            format('permission denied: %s does not belong to role "%s"', what, pgsched.caller());
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.refuse_unknown_job(job text)
 RETURNS void
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    owners name[] := ARRAY(SELECT o.owner FROM (SELECT DISTINCT j.owner FROM pgsched.jobs j) o WHERE pgsched.may_change(o.owner));
    known text[] := ARRAY(SELECT j.name FROM pgsched.jobs j WHERE j.owner = ANY (owners) ORDER BY j.name LIMIT 10000);
    hint text := (SELECT '; did you mean ' || string_agg(c.name, ' or ') || '?' FROM (
        SELECT k.name FROM unnest(known) k(name) WHERE job <> '' AND strpos(lower(k.name), lower(job)) > 0
        ORDER BY length(k.name), k.name LIMIT 3) c);
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'no_data_found', MESSAGE = format('job: there is no job named "%s"%s', left(job, 200),
        coalesce(hint, pgsched.did_you_mean(job, known)));
END $function$;

CREATE OR REPLACE FUNCTION pgsched.refuse_untaken_key()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF NOT EXISTS (SELECT FROM pgsched.kept_keys k
                   WHERE k.scope = 'idempotency' AND k.key = NEW.idempotency_key AND k.run_id IS NULL) THEN
        PERFORM pgsched.raise_bad_value(
            'idempotency_key: an INSERT cannot keep it: use pgsched.enqueue(..., idempotency_key => ...)', 'runs');
    END IF;
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.register_tasks(app text, given jsonb)
 RETURNS name
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    problem text;
    of_other name := pgsched.other_owner(app);
    added text[];
BEGIN
    IF of_other IS NOT NULL THEN
        RETURN of_other;
    END IF;
    -- locked before the table is looked at: of two at once the second must see what the first has registered, and set its bits
    IF NOT EXISTS (
        SELECT FROM jsonb_to_recordset(given) AS g(task text, release text)
        WHERE NOT EXISTS (SELECT FROM pgsched.tasks t
                          WHERE (t.task, t.app, t.release) = (g.task, register_tasks.app, g.release))
    ) THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.take_turn('tasks');
    SELECT format('task "%s": %s', left(g.task, 100), e) INTO problem
    FROM jsonb_to_recordset(given) AS g(task text, options jsonb),
        coalesce(pgsched.bad_text('task', g.task, 200), pgsched.task_options_error(coalesce(g.options, '{}')),
            CASE WHEN NOT pgsched.is_own_key(g.options ->> 'concurrency_key', g.task)
                 THEN 'concurrency_key: "task" is for the limits of tasks' END) AS e
    WHERE e IS NOT NULL LIMIT 1;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'tasks');
    END IF;
    PERFORM setval('pgsched.tasks_with_options', coalesce(pg_sequence_last_value('pgsched.tasks_with_options'), 0) | b.bits)
    FROM (SELECT bit_or(pgsched.queue_bit(g.task)) AS bits FROM jsonb_to_recordset(given) AS g(task text, options jsonb)
          WHERE g.options <> '{}') b WHERE b.bits IS NOT NULL;
    WITH made AS (
        INSERT INTO pgsched.tasks (app, task, release, options, schema, owner)
        SELECT register_tasks.app, g.task, g.release, coalesce(g.options, '{}'), coalesce(g.schema, '{}'), pgsched.caller()
        FROM jsonb_to_recordset(given) AS g(task text, release text, options jsonb, schema jsonb)
        ON CONFLICT DO NOTHING RETURNING task
    )
    SELECT array_agg(m.task) INTO added FROM made m;
    DELETE FROM pgsched.tasks t USING (
        SELECT o.task, o.release, row_number() OVER (PARTITION BY o.task ORDER BY o.first_seen_at DESC) AS place
        FROM pgsched.tasks o WHERE o.app = register_tasks.app AND o.task = ANY (added)
    ) old
    WHERE old.place > pgsched.releases_kept() AND (t.task, t.app, t.release) = (old.task, register_tasks.app, old.release);
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.releases_kept()
 RETURNS integer
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ SELECT 20 $function$;

CREATE OR REPLACE FUNCTION pgsched.remove_calendar_times(calendar text, ids bigint[])
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    n bigint;
BEGIN
    PERFORM pgsched.refuse_others(format('calendar "%s"', c.name), c.owner) FROM pgsched.calendars c
    WHERE c.name = remove_calendar_times.calendar;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    DELETE FROM pgsched.calendar_times t WHERE t.calendar = remove_calendar_times.calendar AND t.id = ANY (ids);
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.reset_mark(job text)
 RETURNS timestamp with time zone
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    j pgsched.jobs;
    mark timestamptz;
    before text := coalesce(current_setting('pgsched.lowers_mark', true), '');
BEGIN
    PERFORM pgsched.refuse_others(format('job "%s"', o.name), o.owner) FROM pgsched.jobs o WHERE o.name = reset_mark.job;
    SELECT * INTO j FROM pgsched.jobs WHERE name = reset_mark.job FOR NO KEY UPDATE;
    IF j.id IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.refuse_others(format('job "%s"', j.name), j.owner);
    -- behind the lock: nobody decides a slot of this job meanwhile
    mark := greatest(clock_timestamp(), pgsched.newest_slot(j.id));
    IF mark >= j.decided_until THEN
        RETURN j.decided_until;
    END IF;
    PERFORM set_config('pgsched.lowers_mark', 'on', true);
    -- shifts: nominal slots ahead of the clock count as undecided again
    UPDATE pgsched.jobs SET decided_until = mark, shifts = NULL,
        next_run_at = CASE WHEN schedule IS NULL OR error IS NOT NULL THEN next_run_at ELSE clock_timestamp() END
    WHERE id = j.id;
    PERFORM set_config('pgsched.lowers_mark', before, true);
    PERFORM pgsched.note('mark reset', 'job', j.name,
        jsonb_build_object('decided_until', jsonb_build_array(j.decided_until, mark)));
    PERFORM pgsched.notify('pgsched_leader', 'jobs');
    RETURN mark;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.resolve_key(task text, args jsonb, kind text, unique_by text[], INOUT unique_key text, INOUT unique_scope text, INOUT on_conflict text, INOUT debounce_max interval, INOUT delay interval, INOUT idempotency_retention interval)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    t record;
    meant text;
BEGIN
    SELECT * INTO t FROM pgsched.task_keys(CASE WHEN coalesce(kind, 'task') = 'task' THEN task END,
        unique_by IS NOT NULL OR coalesce(strpos(unique_key, '{') > 0, false));
    IF unique_key IS NOT NULL AND unique_by IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value('unique_by: give either unique_key or unique_by, not both', 'runs');
    ELSIF unique_key IS NOT NULL THEN
        SELECT n.name INTO meant FROM (
            SELECT jsonb_object_keys(CASE jsonb_typeof(args) WHEN 'object' THEN args ELSE '{}' END)
            UNION ALL SELECT unnest(t.parameters)) n(name)
        WHERE strpos(unique_key, '{' || n.name || '}') > 0 LIMIT 1;
        IF meant IS NOT NULL THEN
            PERFORM pgsched.raise_bad_value(format('unique_key: "%s" holds {%s}, but a key that is given at a call is taken as'
                ' it is: use unique_by => ''{%s}'', or let the task declare this key', left(unique_key, 60),
                left(meant, 60), left(meant, 60)), 'runs');
        END IF;
    ELSIF unique_by IS NOT NULL THEN
        unique_key := pgsched.arguments_key(task, coalesce(args, '{}'), unique_by, t.defaults);
    ELSE
        unique_key := coalesce(pgsched.template_key(t.unique_key, coalesce(args, '{}'), t.defaults),
                               pgsched.arguments_key(task, coalesce(args, '{}'), t.unique_by, t.defaults));
    END IF;
    unique_scope := coalesce(unique_scope, t.unique_scope);
    on_conflict := coalesce(on_conflict, t.on_conflict);
    debounce_max := coalesce(debounce_max, CASE WHEN on_conflict IN ('replace', 'merge') THEN t.debounce_max END);
    delay := coalesce(delay, t.delay);  -- `at` comes before it
    idempotency_retention := coalesce(idempotency_retention, t.idempotency_retention);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.restored()
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM pgsched.refuse_others('the database', NULL);
    PERFORM setval('pgsched.fences'::regclass, nextval('pgsched.fences'::regclass) + 4294967296);
    PERFORM setval('pgsched.store_versions'::regclass, nextval('pgsched.store_versions'::regclass) + 4294967296);
    -- so that nobody takes a version that was given before the restore for one that is given after it
    UPDATE pgsched.store_roots r SET version = r.version + 4294967296, kept_after = r.version + 4294967296,
        look_at = least(r.look_at, clock_timestamp());
    UPDATE pgsched.sessions s SET ended_at = clock_timestamp() WHERE s.ended_at IS NULL;
    PERFORM pgsched.note('restored', 'database', current_database()::text, NULL);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.retry(run_id bigint)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    unstarted boolean;
BEGIN
    PERFORM pgsched.refuse_others(format('run %s', o.id), o.owner) FROM pgsched.runs o WHERE o.id = run_id;
    SELECT r.attempt = 0 AND r.state IN ('dead', 'cancelled', 'missed', 'skipped')
        AND EXISTS (SELECT FROM pgsched.dependencies d WHERE d.run_id = r.id) INTO unstarted
    FROM pgsched.runs r WHERE r.id = run_id FOR UPDATE;
    IF unstarted THEN
        PERFORM pgsched.retry_now(run_id);
        PERFORM pgsched.wait_again(ARRAY[run_id]);
        RETURN (SELECT r.state FROM pgsched.runs r WHERE r.id = run_id);
    END IF;
    RETURN pgsched.retry_now(run_id);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.retry_now(run_id bigint)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    r pgsched.runs;
    apart boolean;  -- a run that went wrong once for a whole stretch is tried again for all of it
BEGIN
    PERFORM pgsched.refuse_others(format('run %s', o.id), o.owner) FROM pgsched.runs o WHERE o.id = run_id;
    SELECT * INTO r FROM pgsched.runs WHERE id = run_id FOR UPDATE;
    apart := r.covers_state IS NULL AND r.covers_from < r.covers_until AND r.state IN ('missed', 'skipped');
    IF r.id IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.refuse_others(format('run %s', r.id), r.owner);
    IF r.state NOT IN ('dead', 'cancelled', 'missed', 'skipped') THEN
        RETURN r.state;
    ELSIF EXISTS (SELECT FROM pgsched.runs o WHERE o.unique_key = r.unique_key AND o.phase < 3 /* open */) THEN
        RAISE EXCEPTION USING ERRCODE = 'check_violation', COLUMN = 'unique_key', MESSAGE =
            format('unique_key: an unfinished run has the key "%s" of run %s already', r.unique_key, run_id);
    END IF;
    PERFORM pgsched.note('retried', 'run', r.id::text, jsonb_build_object('state', r.state, 'task', left(r.task, 200)));
    IF r.kind = 'item' THEN
        RETURN pgsched.item_revive(r);
    END IF;
    -- a snapshot of the whole transaction may be older than the queue's limit: let the leader judge
    r.state := CASE WHEN pgsched.is_limited(r.queue, r.concurrency_key)
                        OR current_setting('transaction_isolation') <> 'read committed' THEN 'waiting' ELSE 'queued' END;
    UPDATE pgsched.runs SET state = r.state, finished_at = NULL, token = NULL, available_at = clock_timestamp(),
        ready_at = CASE r.state WHEN 'waiting' THEN clock_timestamp() END,
        reruns = coalesce(reruns, 0) + 1, crashes = 0, max_attempts = least(1000, greatest(max_attempts, attempt + 1)), cancel_requested_at = NULL,
        cancel_reason = NULL, reason = NULL, expires_at = NULL, held_until = NULL,
        has_children = (SELECT true FROM pgsched.dependencies d WHERE d.parent_id = r.id AND d.state = 'open' LIMIT 1),
        covers_state = CASE WHEN apart THEN state ELSE covers_state END,
        covers_reason = CASE WHEN apart THEN r.reason ELSE covers_reason END
    WHERE id = run_id;
    IF EXISTS (SELECT FROM pgsched.dependencies d WHERE d.run_id = r.id AND d.state <> 'met') THEN  -- a right of its own
        UPDATE pgsched.dependencies d SET state = 'met' WHERE d.run_id = r.id AND d.state <> 'met';
    END IF;
    PERFORM CASE r.state WHEN 'queued' THEN pgsched.notify('pgsched_runs', pgsched.queue_mark(r.queue))
        ELSE pgsched.tell_leader() END;
    RETURN r.state;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.retry_tree(run_id bigint)
 RETURNS TABLE(id bigint, state text)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    revived bigint[];
    one bigint;
BEGIN
    revived := ARRAY(SELECT r.id FROM pgsched.runs r WHERE r.id = ANY (ARRAY(SELECT pgsched.run_graph(retry_tree.run_id)))
                     AND r.state IN ('dead', 'cancelled', 'missed', 'skipped'));
    PERFORM pgsched.refuse_others(format('run %s', o.id), o.owner) FROM pgsched.runs o WHERE o.id = ANY (revived);
    -- locked before any is changed, and in the order in which the leader locks them
    revived := ARRAY(SELECT r.id FROM pgsched.runs r WHERE r.id = ANY (revived)
                     AND r.state IN ('dead', 'cancelled', 'missed', 'skipped') ORDER BY r.id FOR UPDATE);
    FOREACH one IN ARRAY revived LOOP
        PERFORM pgsched.retry_now(one);
    END LOOP;
    PERFORM pgsched.wait_again(revived);
    RETURN QUERY SELECT r.id, r.state FROM pgsched.runs r WHERE r.id = ANY (revived) ORDER BY r.id;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.revoke_names(prefix text, role name)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM pgsched.refuse_others(format('prefix "%s"', left(prefix, 200)), NULL);
    DELETE FROM pgsched.name_grants g WHERE g.prefix = revoke_names.prefix AND g.role = revoke_names.role;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pgsched.note('revoked', 'names', revoke_names.prefix, jsonb_build_object('role', revoke_names.role));
    RETURN true;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.roots_of_caller(prefix text)
 RETURNS text[]
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    roles name[] := ARRAY(SELECT r.rolname FROM pg_roles r WHERE pg_has_role(pgsched.caller(), r.oid, 'MEMBER'));
BEGIN
    RETURN ARRAY(
        SELECT r.root FROM pgsched.store_roots r WHERE r.owner = ANY (roles) AND starts_with(r.root, roots_of_caller.prefix)
        UNION SELECT r.root FROM pgsched.name_grants g JOIN pgsched.store_roots r
            ON starts_with(r.root, g.prefix) OR starts_with(g.prefix, r.root || '/')
        WHERE g.role = ANY (roles) AND starts_with(r.root, roots_of_caller.prefix));
END $function$;

CREATE OR REPLACE FUNCTION pgsched.row_of_slot(job_id bigint, slot timestamp with time zone)
 RETURNS pgsched.runs
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
AS $function$
    SELECT r.* FROM pgsched.runs r WHERE r.id = (
        SELECT f.id FROM (
            (SELECT o.id, o.covers_from, o.covers_until, o.scheduled_at FROM pgsched.runs o
             WHERE o.job_id = $1 AND o.scheduled_at >= $2 ORDER BY o.job_id, o.scheduled_at LIMIT 1000)
            UNION ALL  -- one that grew has its first slots' row; runs that a person made are not its end (as in tick_extend)
            (SELECT o.id, o.covers_from, o.covers_until, o.scheduled_at FROM pgsched.runs o
             WHERE o.job_id = $1 AND o.scheduled_at < $2 AND (o.origin = 'schedule' OR o.covers_from IS NOT NULL)
             ORDER BY o.job_id DESC, o.scheduled_at DESC LIMIT 1)) f
        WHERE f.scheduled_at = $2 OR $2 BETWEEN f.covers_from AND f.covers_until
        ORDER BY f.scheduled_at = $2 DESC, f.covers_until - f.covers_from LIMIT 1)
$function$;

CREATE OR REPLACE FUNCTION pgsched.row_origin(r pgsched.runs, slot timestamp with time zone)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN r.origin = 'manual' THEN '. It was asked for by hand'
        WHEN r.origin <> 'schedule' THEN format('. Backfill %s asked for it', r.backfill_id)
        WHEN r.created_at - slot <= interval '5 seconds' OR r.state IN ('skipped', 'missed')
            -- rows for these reasons are always made later than their slots
            AND r.reason ~ '^(paused since|excluded |the job had ended: its (ends_at|max_runs))' THEN ''
        ELSE (SELECT format('. It was decided %s late', pgsched.elapsed(r.created_at - slot)) || coalesce(
                  CASE WHEN a.first_at - slot <= interval '5 seconds' THEN ', because' ELSE '; meanwhile' END || ' no process led ' || a.words, '')
              FROM pgsched.leader_absences(slot, r.created_at) a) END
$function$;

CREATE OR REPLACE FUNCTION pgsched.rows_of_role(what text, owner name, most bigint)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    RETURN CASE what
        WHEN 'sessions' THEN (SELECT count(*) FROM (SELECT FROM pgsched.sessions s WHERE s.owner = rows_of_role.owner LIMIT most + 1) few)
        WHEN 'locks' THEN (SELECT count(*) FROM (SELECT FROM pgsched.locks l WHERE l.owner = rows_of_role.owner LIMIT most + 1) few)
        WHEN 'lock_places' THEN (SELECT count(*) FROM (SELECT FROM pgsched.sessions s JOIN pgsched.lock_places p ON p.session = s.id
                                                       WHERE s.owner = rows_of_role.owner LIMIT most + 1) few)
        WHEN 'store_roots' THEN (SELECT count(*) FROM (SELECT FROM pgsched.store_roots r WHERE r.owner = rows_of_role.owner LIMIT most + 1) few)
        WHEN 'item_queues' THEN (SELECT count(*) FROM (SELECT FROM pgsched.item_queues q WHERE q.owner = rows_of_role.owner LIMIT most + 1) few)
    END;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.run_codes_error(field text, codes jsonb)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET standard_conforming_strings TO 'on'
AS $function$
    SELECT CASE
        WHEN codes IS NULL OR codes = 'null' THEN NULL
        WHEN jsonb_typeof(codes) <> 'array' OR codes = '[]' THEN
            format('options.%s: expected an array of exit codes', field)
        ELSE (SELECT format('options.%s: %s is no exit code 0-255', field, left(c.code::text, 60))
              FROM jsonb_array_elements(codes) c(code)
              WHERE CASE WHEN jsonb_typeof(c.code) <> 'number' THEN true
                    ELSE c.code::text !~ '^\d{1,3}$' OR c.code::text::integer > 255 END LIMIT 1)
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.run_error(r pgsched.runs)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT coalesce(
        pgsched.not_one_of('kind', r.kind, ARRAY['task', 'command', 'shell', 'sql', 'http']),
        CASE WHEN btrim(r.task) = '' THEN 'task: must not be empty'
             WHEN length(r.task) > 65536 THEN
                 format('task: %s characters, at most 65536 are allowed', length(r.task)) END,
        CASE WHEN r.kind = 'http' THEN pgsched.http_url_error(r.task) END,
        pgsched.args_error(r.kind, r.args),
        pgsched.bad_text('queue', r.queue, 100),
        pgsched.not_one_of('origin', r.origin, ARRAY['schedule', 'manual', 'backfill', 'enqueue']),
        pgsched.out_of_range('priority', r.priority, 0, 9),
        pgsched.out_of_range('max_attempts', r.max_attempts, 1, 1000),
        pgsched.bad_instant('available_at', r.available_at),
        pgsched.bad_instant('scheduled_at', r.scheduled_at),
        pgsched.bad_instant('expires_at', r.expires_at),
        pgsched.bad_interval('timeout', r.timeout, '1 millisecond'),
        pgsched.bad_interval('kill_after', r.kill_after, '0'),
        pgsched.bad_interval('keep', r.keep, '0'),
        CASE WHEN r.backoff IS NOT NULL THEN
            pgsched.not_one_of('backoff', r.backoff, ARRAY['exponential', 'fixed', 'linear']) END,
        pgsched.bad_interval('backoff_base', r.backoff_base, '0'),
        pgsched.bad_interval('backoff_max', r.backoff_max, '0'),
        CASE WHEN r.backoff_jitter IS NOT NULL THEN
            pgsched.out_of_range('backoff_jitter', r.backoff_jitter::numeric, 0, 1) END,
        CASE WHEN r.concurrency_key IS NOT NULL THEN pgsched.bad_text('concurrency_key', r.concurrency_key, 500) END)
$function$;

CREATE OR REPLACE FUNCTION pgsched.run_figures(id bigint)
 RETURNS TABLE(run bigint, of_job text, task text, slot timestamp with time zone, state text, started timestamp with time zone, finished timestamp with time zone, took interval, late interval, attempts integer, worker text, why text)
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT r.id, (SELECT j.name FROM pgsched.jobs j WHERE j.id = r.job_id), left(r.task, 200), r.scheduled_at, r.state,
        r.started_at, r.finished_at, coalesce(r.finished_at, clock_timestamp()) - r.started_at,
        CASE WHEN r.origin = 'schedule' THEN pgsched.first_start(r.id, r.started_at) - r.scheduled_at END, r.attempt,
        (SELECT w.name FROM pgsched.workers w WHERE w.id = r.worker_id),
        left(split_part(coalesce(r.error, r.reason), E'\n', 1), 1000)
    FROM pgsched.runs r WHERE r.id = run_figures.id
$function$;

CREATE OR REPLACE FUNCTION pgsched.run_graph(run_id bigint)
 RETURNS SETOF bigint
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
    WITH RECURSIVE graph AS (
        SELECT $1 AS id
        UNION
        SELECT next.id FROM graph CROSS JOIN LATERAL (
            SELECT d.parent_id AS id FROM pgsched.dependencies d WHERE d.run_id = graph.id
            UNION ALL
            SELECT d.run_id FROM pgsched.dependencies d WHERE d.parent_id = graph.id
            OFFSET 0) next
    )
    SELECT id FROM graph
$function$;

CREATE OR REPLACE FUNCTION pgsched.run_key(job_id bigint, template text, concurrency_limit integer, args jsonb)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
        FROM (SELECT m[1] AS part, substring(m[1] FROM E'^\\{([^{}]+)\\}$') AS name, n
              FROM regexp_matches(template, E'(\\{[^{}]+\\}|\\{|[^{]+)', 'g') WITH ORDINALITY AS r(m, n)) p
        CROSS JOIN LATERAL (SELECT CASE
            WHEN jsonb_typeof(args) = 'object' THEN args ->> p.name
            WHEN p.name ~ E'^\\d{1,4}$' THEN args ->> p.name::integer END AS value) v;
    END IF;
    made := CASE WHEN template IS NOT NULL THEN coalesce(nullif(btrim(made), ''), '-') END;
    IF concurrency_limit IS NOT NULL THEN
        made := 'job:' || job_id || coalesce(':' || made, '');
    ELSIF made ~ '^job(:|$)' OR made ~ '^task(:|$)' AND (job_id IS NOT NULL OR template !~ '^task:') THEN
        made := '-' || made;
    END IF;
    RETURN CASE WHEN length(made) <= 200 THEN made ELSE left(made, 160) || md5(made) END;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.run_marker_error(r pgsched.runs)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN r.available_at >= '8998-01-01 00:00Z'
            AND (r.state = 'waiting' AND r.ready_at IS NULL AND r.available_at = '8999-01-01 00:00Z' AND r.job_id IS NULL
                 OR pgsched.may_lead()) IS NOT TRUE THEN
            format('available_at: %s is not an instant between 1970 and 8997', r.available_at)
        WHEN r.job_id IS NULL AND r.concurrency_key ~ '^job(:|$)' THEN
            'concurrency_key: job:... is the limit of a job: its runs alone have it'
        WHEN r.job_id IS NULL AND NOT pgsched.is_own_key(r.concurrency_key, r.task) THEN
            'concurrency_key: task:... is the limit of a task: its runs alone have it'
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.run_of_key(unique_key text)
 RETURNS bigint
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    r record;
BEGIN
    SELECT o.id, o.owner INTO r FROM pgsched.runs o WHERE o.unique_key = run_of_key.unique_key AND o.phase < 3 /* open */;
    PERFORM pgsched.refuse_others('the run that has the unique key', r.owner) WHERE r.id IS NOT NULL;
    RETURN r.id;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.run_options_error(kind text, options jsonb, marked boolean)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN options IS NULL THEN NULL
        WHEN jsonb_typeof(options) <> 'object' THEN
            format('options: must be a JSON object, not a %s', jsonb_typeof(options))
        WHEN jsonb_path_exists(options, 'strict $.**{201}') THEN 'options: nested more than 200 deep'
        WHEN options ?| '{after_jobs,overlap}' AND NOT pgsched.may_lead() THEN
            'options: after_jobs and overlap are set by pgsched itself'
        WHEN options ?| '{after_match,ping_url}' AND NOT pgsched.may_lead() THEN
            'options: after_match and ping_url are set by pgsched itself'
        WHEN options ? 'after_jobs' AND (jsonb_typeof(options -> 'after_jobs') <> 'array' OR jsonb_array_length(
                CASE jsonb_typeof(options -> 'after_jobs') WHEN 'array' THEN options -> 'after_jobs' ELSE '[]' END)
                <> (SELECT count(*) FROM pgsched.after_jobs_of(options))) THEN
            'options: after_jobs is no array of the numbers of jobs'
        WHEN options ? 'after_match' AND coalesce(options ->> 'after_match' NOT IN ('latest', 'since_last'), true) THEN
            'options: after_match is neither latest nor since_last'
        WHEN options ? 'ping_url' AND (jsonb_typeof(options -> 'ping_url') <> 'string'
                                       OR pgsched.http_url_error(options ->> 'ping_url') IS NOT NULL) THEN
            'options: ping_url is no URL'
        WHEN options ? 'not_before' AND NOT marked AND NOT pgsched.may_lead() THEN
            'options: not_before is set by pgsched itself'
        WHEN options ? 'not_before' AND coalesce(pgsched.not_before_of(options) NOT BETWEEN '1970-01-01 00:00Z'
                                                 AND '8998-01-01 00:00Z', true) THEN
            'options: not_before is no instant as in "2026-05-01T12:00:00+00:00", between 1970 and 8997'
        WHEN kind IN ('command', 'shell') THEN coalesce(
            pgsched.run_codes_error('success_codes', options -> 'success_codes'),
            pgsched.run_codes_error('retry_codes', options -> 'retry_codes'),
            pgsched.run_codes_error('dead_codes', options -> 'dead_codes'))
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.run_owner_error(r pgsched.runs)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN NOT EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = r.job_id AND j.kind = 'sql'
                                 AND j.owner = r.owner AND j.task = r.task)
           THEN pgsched.bad_owner(r.owner) END
$function$;

CREATE OR REPLACE FUNCTION pgsched.run_size_error(unique_key text, tags text[], options jsonb, progress jsonb, cancel_reason text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT format('%s: %s bytes, at most %s are allowed', name, size, most) FROM (VALUES
        ('unique_key', octet_length(unique_key), 4000), ('tags', octet_length(array_to_json(tags)::text), 65536),
        ('options', octet_length(options::text), 65536), ('progress', octet_length(progress::text), 65536),
        ('cancel_reason', octet_length(cancel_reason), 65536)) AS v(name, size, most)
    WHERE size > most LIMIT 1
$function$;

CREATE OR REPLACE FUNCTION pgsched.run_slot_error(r pgsched.runs)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN (r.job_id IS NULL) <> (r.scheduled_at IS NULL)
        THEN 'scheduled_at: a run of a job has one, and no other run' END
$function$;

CREATE OR REPLACE FUNCTION pgsched.runs_after_update()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    problem text := pgsched.run_error(NEW);
BEGIN
    IF NEW.kind = 'sql' AND (NEW.kind, NEW.task, NEW.args, NEW.owner)
        IS DISTINCT FROM (OLD.kind, OLD.task, OLD.args, OLD.owner) THEN
        problem := coalesce(problem, pgsched.bad_owner(NEW.owner));
    END IF;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.runs_awaited_ended()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM pgsched.notify('pgsched_ended', '');
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.runs_before_insert()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
DECLARE
    problem text;
    told text;
    more jsonb;
BEGIN
    IF NEW.kind = 'task' AND (pg_catalog.pg_sequence_last_value('pgsched.tasks_with_options'::regclass)
        >> pg_catalog.mod(pg_catalog.hashtext(NEW.task) & 2147483647, 61)) & 1::bigint = 1::bigint  -- pgsched.has_options
    THEN
        SELECT coalesce(NEW.queue, o.queue), coalesce(NEW.priority, o.priority), coalesce(NEW.max_attempts, o.max_attempts),
            coalesce(NEW.timeout, o.timeout), coalesce(NEW.tags, o.tags), coalesce(NEW.concurrency_key,
                CASE WHEN NEW.job_id IS NULL THEN o.concurrency_key
                     ELSE pgsched.run_key(NULL, o.concurrency_key, NULL, NEW.args) END), o.more
        INTO NEW.queue, NEW.priority, NEW.max_attempts, NEW.timeout, NEW.tags, NEW.concurrency_key, more
        FROM pgsched.task_options(NEW.task) o;
        IF more IS NOT NULL THEN
            NEW := pgsched.take_options(NEW, more);
        END IF;
    END IF;
    IF NEW.queue IS NULL THEN
        NEW.queue := 'default';
    END IF;
    IF NEW.priority IS NULL THEN
        NEW.priority := 5;
    END IF;
    IF NEW.max_attempts IS NULL THEN
        NEW.max_attempts := 3;
    END IF;
    -- a template, which is read once: the key of a job's run is made by who makes the run
    IF NEW.concurrency_key IS NOT NULL AND NEW.job_id IS NULL AND pg_catalog.strpos(NEW.concurrency_key, '{') > 0
        AND pg_catalog.length(NEW.concurrency_key) <= 500
    THEN
        NEW.concurrency_key := pgsched.run_key(NULL, NEW.concurrency_key, NULL, NEW.args);
    END IF;
    IF (NEW.kind IN ('task', 'command', 'shell', 'sql') AND (NEW.job_id IS NULL) = (NEW.scheduled_at IS NULL) AND pg_catalog.btrim(NEW.task) <> ''
        AND pg_catalog.length(NEW.task) <= 65536
        AND (pg_catalog.jsonb_typeof(NEW.args) = 'object'
             OR pg_catalog.jsonb_typeof(NEW.args) = 'array' AND NEW.kind <> 'shell')
        -- of a compressed value the size says nothing; each level takes eight bytes: what is small is not deep
        AND CASE WHEN pg_catalog.pg_column_compression(NEW.args) IS NOT NULL THEN pgsched.args_error('task', NEW.args) IS NULL
                 ELSE pg_catalog.pg_column_size(NEW.args) <= 1600 OR pg_catalog.pg_column_size(NEW.args) <= 1048576
                      AND NOT pg_catalog.jsonb_path_exists(NEW.args, 'strict $.**{201}') END
        -- a slot has the arguments of its job, which were judged when they were written there
        AND (NEW.kind = 'task' OR NEW.origin IN ('schedule', 'backfill') OR pgsched.args_error(NEW.kind, NEW.args) IS NULL)
        AND (NEW.queue = 'default' OR NEW.queue <> '' AND pg_catalog.length(NEW.queue) <= 100
             AND NEW.queue = pg_catalog.btrim(NEW.queue)
             AND NEW.queue !~ E'[\\x01-\\x1f\\x7f]')
        AND NEW.priority BETWEEN 0 AND 9 AND NEW.max_attempts BETWEEN 1 AND 1000
        AND NEW.origin IN ('enqueue', 'schedule', 'manual', 'backfill')
        AND NEW.available_at >= '1970-01-01 00:00Z' AND NEW.available_at < '8998-01-01 00:00Z'
        AND (NEW.scheduled_at IS NULL OR NEW.scheduled_at BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z')
        AND (NEW.expires_at IS NULL OR NEW.expires_at BETWEEN '1970-01-01 00:00Z' AND '9000-01-01 00:00Z')
        AND (NEW.timeout IS NULL OR NEW.timeout BETWEEN '1 millisecond' AND '10 years')
        AND (NEW.kill_after IS NULL OR NEW.kill_after BETWEEN '0' AND '10 years')
        AND (NEW.backoff IS NULL OR NEW.backoff IN ('exponential', 'fixed', 'linear'))
        AND (NEW.backoff_base IS NULL OR NEW.backoff_base BETWEEN '0' AND '10 years')
        AND (NEW.backoff_max IS NULL OR NEW.backoff_max BETWEEN '0' AND '10 years')
        AND (NEW.backoff_jitter IS NULL OR NEW.backoff_jitter BETWEEN 0::float8 AND 1::float8)
        AND (NEW.concurrency_key IS NULL OR pg_catalog.length(NEW.concurrency_key) BETWEEN 1 AND 500
             AND (NEW.job_id IS NOT NULL OR NEW.concurrency_key !~ '^(job|task)(:|$)'
                  OR NEW.concurrency_key ~ '^task:' AND pgsched.is_own_key(NEW.concurrency_key, NEW.task)))
        AND pg_catalog.num_nonnulls(NEW.unique_key, NEW.tags, NEW.options, NEW.progress, NEW.cancel_reason, NEW.keep) = 0) IS NOT TRUE
    THEN
        problem := coalesce(pgsched.run_slot_error(NEW), pgsched.run_error(NEW), pgsched.run_size_error(
            NEW.unique_key, NEW.tags, NEW.options, NEW.progress, NEW.cancel_reason),
            pgsched.run_marker_error(NEW), pgsched.run_options_error(NEW.kind, NEW.options,
                NEW.available_at = '8999-01-01 00:00Z'));
        IF problem IS NOT NULL THEN
            PERFORM pgsched.raise_bad_value(problem, 'runs');
        END IF;
    END IF;
    IF NEW.state = 'queued' AND NEW.available_at > pg_catalog.clock_timestamp() THEN
        NEW.state := 'scheduled';
    END IF;
    IF NEW.state = 'queued' AND (NEW.concurrency_key IS NOT NULL
        OR (pg_catalog.pg_sequence_last_value('pgsched.gated_queues'::regclass)
            >> pg_catalog.mod(pg_catalog.hashtext(NEW.queue) & 2147483647, 61)) & 1::bigint = 1::bigint)
    THEN
        -- Nobody hears that a slot, or a run of a backfill, is refused: the leader makes them, many at a time, and one that
        -- is refused would take all others with it. So a full queue takes them in addition, unless it sheds its oldest.
        IF NEW.origin IN ('schedule', 'backfill') AND NOT pgsched.sheds_oldest(NEW.queue) THEN
            NEW.state := pgsched.back_in_line(NEW.state, NEW.queue, NEW.concurrency_key);
        ELSE
            NEW.state := pgsched.entry_state(NEW.queue, NEW.concurrency_key);
        END IF;
        IF NEW.state = 'waiting' THEN
            NEW.ready_at := pg_catalog.clock_timestamp();
        END IF;
    END IF;
    IF NEW.state = 'queued' THEN
        IF pg_catalog.pg_sequence_last_value('pgsched.asleep_until'::regclass)::float8
           >= pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000::float8 THEN  -- pgsched.may_be_asleep
            told := pgsched.tell_workers(NEW.queue);
        END IF;
    ELSIF NEW.state = 'waiting' OR NEW.state = 'scheduled'
        AND pg_catalog.pg_sequence_last_value('pgsched.leader_looks_at'::regclass)::float8
            > pg_catalog.date_part('epoch', NEW.available_at) * 1000::float8 THEN
        told := pgsched.tell_leader(CASE NEW.state WHEN 'scheduled' THEN NEW.available_at END);
    END IF;
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.runs_born_in_phase()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    NEW.phase := pgsched.phase_of(NEW.state);
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.runs_decided()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    NEW.queue := coalesce(NEW.queue, 'default');
    NEW.priority := coalesce(NEW.priority, 5);
    NEW.max_attempts := coalesce(NEW.max_attempts, 3);
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.runs_mend_phase()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    UPDATE pgsched.runs SET phase = pgsched.phase_of(NEW.state) WHERE id = NEW.id;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.runs_owner()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    problem text;
BEGIN
    NEW.owner := coalesce(NEW.owner, current_user);
    problem := pgsched.run_owner_error(NEW);
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.runs_refuse_instants()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM pgsched.raise_bad_value(coalesce(
        pgsched.run_slot_error(NEW), pgsched.bad_instant('available_at', NEW.available_at),
        pgsched.bad_instant('scheduled_at', NEW.scheduled_at), pgsched.bad_instant('expires_at', NEW.expires_at)), 'runs');
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.runs_refuse_size()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    problem text := pgsched.run_size_error(NEW.unique_key, NEW.tags, NEW.options, NEW.progress, NEW.cancel_reason);
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.schedule_error(expression text)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE STRICT
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    reason text := pgsched.schedule_refusal(expression);
BEGIN
    RETURN CASE WHEN reason IS NOT NULL THEN reason || pgsched.schedule_hint(expression) END;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.schedule_field_error(field text, entry text)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET standard_conforming_strings TO 'on'
AS $function$
DECLARE
    items text[] := string_to_array(entry, ',');
    item text;
    reason text;
BEGIN
    FOREACH item IN ARRAY items LOOP
        IF item = '' THEN
            RETURN format('%s: empty item in "%s"', field, entry);
        ELSIF item ~* '\?|^[hr](\(.*\))?(/.*)?$' THEN
            RETURN format('%s: "%s" is not supported', field, item);
        END IF;
    END LOOP;
    FOREACH item IN ARRAY items LOOP
        reason := pgsched.schedule_item_error(field, item);
        EXIT WHEN reason IS NOT NULL;
    END LOOP;
    RETURN reason;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.schedule_hint(expression text)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE STRICT
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET standard_conforming_strings TO 'on'
AS $function$
DECLARE
    is_zone constant text := '^([A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z][A-Za-z0-9_+-]+)+|utc|gmt|UTC|GMT)$';
    words text[];
    zone text;
    rest text;
    meant text;
BEGIN
    IF length(expression) > 512 OR expression COLLATE "C" !~ '^[\x20-\x7e\t]*$' THEN
        RETURN '';
    END IF;
    words := regexp_split_to_array(btrim(expression, E' \t,'), '[ \t,]+');
    IF words[cardinality(words)] ~ is_zone THEN
        zone := words[cardinality(words)];
        words := words[:cardinality(words) - 1];
    END IF;
    IF cardinality(words) = 0 OR zone IS NOT NULL AND words[cardinality(words)] ~ is_zone THEN
        RETURN '';
    ELSIF zone IS NOT NULL THEN
        rest := btrim(left(rtrim(expression, E' \t,'), -length(zone)), E' \t');
        meant := CASE WHEN pgsched.schedule_refusal(rest) IS NULL THEN regexp_replace(rest, '[ \t]+', ' ', 'g') END;
    END IF;
    meant := coalesce(meant, pgsched.hinted_schedule(words));
    RETURN CASE WHEN meant IS NULL THEN ''
        WHEN zone IS NULL THEN format('; did you mean %s?', meant)
        ELSE format('; did you mean %s with timezone %s?', meant, CASE WHEN length(zone) = 3 THEN upper(zone) ELSE zone END) END;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.schedule_interval_error(typed text)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    parts text[] := regexp_match(typed, '^(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?$', 'i');
    total numeric := coalesce(parts[1], '0')::numeric * 86400 + coalesce(parts[2], '0')::numeric * 3600
                   + coalesce(parts[3], '0')::numeric * 60 + coalesce(parts[4], '0')::numeric;
BEGIN
    IF parts IS NULL THEN
        RETURN format('schedule: "%s" is not a duration such as 90s or 1h30m', typed);
    ELSIF total < 1 THEN
        RETURN format('schedule: "%s" is shorter than 1s', typed);
    ELSIF total > 10000 * 86400 THEN
        RETURN format('schedule: "%s" is longer than 10000d', typed);
    END IF;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.schedule_item_error(field text, item text)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    reason text;
BEGIN
    IF field = 'day of month' AND item ~* '^lw?$' THEN
        RETURN NULL;
    ELSIF field = 'day of month' AND item ~* '^([0-9]+w|w[0-9]+)$' THEN
        RETURN pgsched.schedule_value_error(field, btrim(item, 'wW'));
    ELSIF field = 'day of week' AND item ~* '^[0-9a-z]+#' THEN
        reason := pgsched.schedule_value_error(field, split_part(item, '#', 1));
        IF reason IS NULL AND item !~ '^[^#]+#0*[1-5]$' THEN
            reason := format('%s: "%s" needs a number from 1 to 5 after #', field, item);
        END IF;
        RETURN reason;
    ELSIF field = 'day of week' AND item ~* '^l[0-9]+$' THEN
        RETURN pgsched.schedule_value_error(field, substr(item, 2));
    ELSIF field = 'day of week' AND item ~* '^([0-9]+|[a-z]{3})l$' THEN
        RETURN pgsched.schedule_value_error(field, left(item, -1));
    END IF;
    RETURN pgsched.schedule_numbers_error(field, item);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.schedule_macro_error(words text[])
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    macro text := lower(words[1] COLLATE "C");
BEGIN
    IF macro IN ('@every', '@after') AND cardinality(words) <> 2 THEN
        RETURN format('schedule: %s needs one duration such as 90s or 1h30m', macro);
    ELSIF macro IN ('@every', '@after') THEN
        RETURN pgsched.schedule_interval_error(words[2]);
    ELSIF macro = '@reboot' THEN
        RETURN format('schedule: "%s" is not supported', words[1]);
    ELSIF macro NOT IN ('@yearly', '@annually', '@monthly', '@weekly', '@daily', '@midnight', '@hourly') THEN
        RETURN format('schedule: "%s" is not a known macro', words[1]);
    ELSIF cardinality(words) > 1 THEN
        RETURN format('schedule: %s takes nothing after it', words[1]);
    END IF;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.schedule_numbers_error(field text, item text)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    body text := split_part(item, '/', 1);
    low text := split_part(body, '-', 1);
    high text := substr(body, length(low) + 2);
    reason text;
BEGIN
    IF strpos(item, '/') > 0 THEN
        reason := pgsched.schedule_step_error(field, substr(item, length(body) + 2));
    END IF;
    IF reason IS NOT NULL OR body = '*' THEN
        RETURN reason;
    ELSIF low <> '' AND high <> '' THEN
        RETURN pgsched.schedule_range_error(field, low, high);
    END IF;
    RETURN pgsched.schedule_value_error(field, body);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.schedule_part_error(expression text)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE STRICT
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET standard_conforming_strings TO 'on'
AS $function$
DECLARE
    words text[] := regexp_split_to_array(btrim(expression, E' \t'), '[ \t]+');
    fields text[] := ARRAY['second', 'minute', 'hour', 'day of month', 'month', 'day of week'];
    reason text;
BEGIN
    IF words[1] LIKE '@%' THEN
        RETURN pgsched.schedule_macro_error(words);
    ELSIF words[1] ~* '^(cron_)?tz=' THEN
        RETURN format('schedule: "%s" is not supported, set timezone instead', words[1]);
    ELSIF words[1] = '' OR cardinality(words) NOT IN (5, 6) THEN
        RETURN format('schedule: expected 5 or 6 fields, got %s', cardinality(array_remove(words, '')));
    END IF;
    FOR i IN 1 .. cardinality(words) LOOP
        reason := pgsched.schedule_field_error(fields[6 - cardinality(words) + i], words[i]);
        EXIT WHEN reason IS NOT NULL;
    END LOOP;
    RETURN reason;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.schedule_range_error(field text, low text, high text)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    reason text := coalesce(pgsched.schedule_value_error(field, low), pgsched.schedule_value_error(field, high));
    first_value numeric := pgsched.schedule_value(field, low);
    last_value numeric := pgsched.schedule_value(field, high);
BEGIN
    IF reason IS NULL AND first_value > last_value AND NOT (field = 'day of week' AND last_value = 0) THEN
        reason := format('%s: range %s-%s runs backwards', field, low, high);
    END IF;
    RETURN reason;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.schedule_refusal(expression text)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE STRICT
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET standard_conforming_strings TO 'on'
AS $function$
DECLARE
    most constant integer := 20;
    parts text[];
    part text;
    first_word text;
    reason text;
BEGIN
    IF length(expression) > 512 THEN
        RETURN 'schedule: longer than 512 characters';
    ELSIF expression COLLATE "C" !~ '^[\x20-\x7e\t]*$' THEN
        RETURN 'schedule: only printable ASCII is accepted';
    ELSIF strpos(expression, ';') = 0 THEN
        RETURN pgsched.schedule_part_error(expression);
    END IF;
    parts := string_to_array(expression, ';');
    IF cardinality(parts) > most THEN
        RETURN format('schedule: %s expressions, at most %s are allowed', cardinality(parts), most);
    END IF;
    FOREACH part IN ARRAY parts LOOP
        part := btrim(part, E' \t');
        first_word := lower(substring(part FROM '^[^ \t]*') COLLATE "C");
        IF part = '' THEN
            RETURN 'schedule: an expression beside ";" is empty';
        ELSIF first_word IN ('@every', '@after') THEN
            RETURN format('schedule: %s stands alone, without ";"', first_word);
        END IF;
        reason := pgsched.schedule_part_error(part);
        IF reason IS NOT NULL THEN
            RETURN format('%s (in "%s")', reason, part);
        END IF;
    END LOOP;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.schedule_step_error(field text, step text)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    size integer := CASE field WHEN 'hour' THEN 24 WHEN 'day of month' THEN 31 WHEN 'month' THEN 12
                               WHEN 'day of week' THEN 7 ELSE 60 END;
BEGIN
    IF step !~ '^[0-9]+$' THEN
        RETURN format('%s: step "%s" is not a number', field, step);
    ELSIF step::numeric = 0 THEN
        RETURN format('%s: step 0 must be at least 1', field);
    ELSIF step::numeric > size THEN
        RETURN format('%s: step %s is larger than the field (%s values)', field, step, size);
    END IF;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.schedule_value(field text, typed text)
 RETURNS numeric
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN typed ~ '^[0-9]+$' THEN typed::numeric
        WHEN field = 'month' THEN
            array_position('{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}'::text[], lower(typed COLLATE "C"))
        WHEN field = 'day of week' THEN
            array_position('{sun,mon,tue,wed,thu,fri,sat}'::text[], lower(typed COLLATE "C")) - 1
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.schedule_value_error(field text, typed text)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    low integer := CASE WHEN field IN ('day of month', 'month') THEN 1 ELSE 0 END;
    top integer := CASE field WHEN 'hour' THEN 23 WHEN 'day of month' THEN 31 WHEN 'month' THEN 12
                              WHEN 'day of week' THEN 7 ELSE 59 END;
BEGIN
    IF pgsched.schedule_value(field, typed) IS NULL THEN
        RETURN format('%s: "%s" is not a number', field, typed)
            || CASE WHEN field IN ('month', 'day of week') THEN ' or a name' ELSE '' END;
    ELSIF pgsched.schedule_value(field, typed) NOT BETWEEN low AND top THEN
        RETURN format('%s: %s is out of range %s-%s', field, typed, low, top);
    END IF;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.session_drop(session bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF pgsched.session_has_nothing(session) THEN
        PERFORM FROM pgsched.sessions s WHERE s.id = session_drop.session FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            DELETE FROM pgsched.sessions s WHERE s.id = session_drop.session AND pgsched.session_has_nothing(session);
        END IF;
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.session_end(token uuid)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    s pgsched.sessions;
    one text;
    left_over bigint;
BEGIN
    PERFORM pgsched.commit_durably();
    PERFORM pgsched.refuse_others('the session', o.owner) FROM pgsched.sessions o
    WHERE o.token = session_end.token AND o.owner <> pgsched.caller();
    UPDATE pgsched.sessions o SET ended_at = coalesce(o.ended_at, clock_timestamp()) WHERE o.token = session_end.token RETURNING * INTO s;
    IF s.id IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.leave_lines(ARRAY[s.id]);
    FOR one IN SELECT DISTINCT k.root FROM pgsched.store k WHERE k.session = s.id ORDER BY k.root LIMIT 100 LOOP
        CONTINUE WHEN NOT EXISTS (SELECT FROM pgsched.store_roots r WHERE r.root = one FOR NO KEY UPDATE SKIP LOCKED);
        PERFORM pgsched.store_lock(one);
        PERFORM pgsched.store_drop(one, ARRAY[s.id]);
    END LOOP;
    PERFORM pgsched.item_end_session(s.id);
    SELECT count(*) INTO left_over FROM pgsched.lock_places p WHERE p.session = s.id AND p.left_at IS NULL;
    left_over := left_over + (SELECT count(*) FROM pgsched.store k WHERE k.session = s.id);
    PERFORM pgsched.session_drop(s.id);
    RETURN left_over;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.session_has_nothing(session bigint)
 RETURNS boolean
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
    SELECT NOT EXISTS (SELECT FROM pgsched.lock_places p WHERE p.session = session_has_nothing.session)
        AND NOT EXISTS (SELECT FROM pgsched.store k WHERE k.session = session_has_nothing.session)
        AND NOT EXISTS (SELECT FROM pgsched.item_consumers c JOIN pgsched.items i ON i.queue = c.queue AND i.session = c.session
                        WHERE c.session = session_has_nothing.session)
$function$;

CREATE OR REPLACE FUNCTION pgsched.session_leases(session uuid, tokens uuid[], positions boolean DEFAULT false)
 RETURNS TABLE(token uuid, fence bigint, look_at timestamp with time zone, "position" bigint)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    s pgsched.sessions;
    p pgsched.lock_places;
BEGIN
    SELECT * INTO s FROM pgsched.sessions o WHERE o.token = session_leases.session;
    PERFORM pgsched.refuse_others('the session', s.owner) WHERE s.owner <> pgsched.caller();
    IF cardinality(tokens) > 1000 THEN
        PERFORM pgsched.raise_bad_value('tokens: more than 1000', 'lock_places');
    END IF;
    IF s.ended_at IS NOT NULL OR s.lease_until <= clock_timestamp() THEN
        RETURN;
    END IF;
    -- in the order of the locks' names, in which other transactions lock their rows, too
    FOR p IN SELECT q.* FROM pgsched.lock_places q
        WHERE q.token = ANY (tokens) AND q.session = s.id AND q.left_at IS NULL ORDER BY q.lock, q.place LOOP
        token := p.token;
        look_at := NULL;
        "position" := NULL;
        IF p.fence IS NULL AND pgsched.lock_is_next(p.lock, p.place) THEN
            look_at := pgsched.lock_look_at(p.lock);
            -- whose lease ends later is let alone; so is a line in which somebody is at work, because a renewal may wait for this call
            IF coalesce(look_at, '-infinity') > clock_timestamp() + interval '0.2 s' THEN
                NULL;
            ELSIF NOT EXISTS (SELECT FROM pgsched.locks l WHERE l.name = p.lock FOR NO KEY UPDATE SKIP LOCKED) THEN
                look_at := clock_timestamp() + interval '0.1 s';
            ELSE
                PERFORM pgsched.commit_durably();
                PERFORM FROM pgsched.lock_row(p.lock);
                PERFORM pgsched.lock_settle(p.lock);
                look_at := pgsched.lock_look_at(p.lock);
                SELECT q.* INTO p FROM pgsched.lock_places q WHERE q.token = p.token;
                CONTINUE WHEN NOT FOUND;
            END IF;
        ELSIF p.fence IS NULL AND positions THEN
            "position" := pgsched.lock_position(p.lock, p.place);
        END IF;
        fence := p.fence;
        look_at := CASE WHEN fence IS NULL THEN look_at END;
        RETURN NEXT;
    END LOOP;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.session_lives(session bigint)
 RETURNS boolean
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT session IS NULL OR EXISTS (SELECT FROM pgsched.sessions s
        WHERE s.id = session_lives.session AND s.ended_at IS NULL AND s.lease_until > clock_timestamp())
$function$;

CREATE OR REPLACE FUNCTION pgsched.session_open(token uuid, ttl interval DEFAULT '00:00:30'::interval, name text DEFAULT NULL::text, OUT id bigint, OUT lease_until timestamp with time zone)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    s pgsched.sessions;
    problem text := coalesce(
        CASE WHEN token IS NULL THEN 'token: must not be null' END,
        CASE WHEN ttl IS NULL OR ttl NOT BETWEEN '1 s' AND '1 day' THEN format('ttl: %s is not between 1 second and 1 day', ttl) END,
        CASE WHEN length(name) NOT BETWEEN 1 AND 200 THEN 'session: expected a name of 1 to 200 characters' END);
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'sessions');
    END IF;
    PERFORM pgsched.commit_durably();
    SELECT * INTO s FROM pgsched.sessions o WHERE o.token = session_open.token;
    IF s.id IS NULL THEN
        INSERT INTO pgsched.sessions AS o (token, name, owner, ttl, lease_until)
        VALUES (session_open.token, coalesce(session_open.name, nullif(current_setting('application_name'), ''), 'unnamed'),
                pgsched.caller(), session_open.ttl, clock_timestamp() + session_open.ttl)
        ON CONFLICT DO NOTHING RETURNING o.id, o.lease_until INTO id, lease_until;
        IF id IS NOT NULL THEN
            IF id % 50 = 0 OR NOT pgsched.has_room('sessions', pgsched.caller(), id, 10000) THEN
                PERFORM pgsched.sweep_sessions(100, pgsched.caller());
                IF NOT pgsched.has_room('sessions', pgsched.caller(), id, 10000) THEN
                    PERFORM pgsched.raise_bad_value(format('session: role "%s" has 10000 sessions, and may have no more', pgsched.caller()), 'sessions');
                END IF;
            END IF;
            RETURN;
        END IF;
        SELECT * INTO s FROM pgsched.sessions o WHERE o.token = session_open.token;
    END IF;
    id := s.id;
    SELECT r.lease_until INTO lease_until FROM pgsched.session_renew(session_open.token) r;
    IF lease_until IS NULL THEN
        PERFORM pgsched.raise_session_ended();
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.session_renew(token uuid, OUT lease_until timestamp with time zone, OUT losses bigint)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    renewed bigint;
BEGIN
    PERFORM pgsched.commit_durably();
    PERFORM pgsched.refuse_others('the session', s.owner) FROM pgsched.sessions s
    WHERE s.token = session_renew.token AND s.owner <> pgsched.caller();
    UPDATE pgsched.sessions s SET lease_until = clock_timestamp() + s.ttl
    WHERE s.token = session_renew.token AND s.ended_at IS NULL AND s.lease_until > clock_timestamp()
    RETURNING s.id, s.lease_until INTO renewed, lease_until;
    SELECT count(*) INTO losses FROM pgsched.lock_losses l WHERE l.session = renewed;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.set_tags(run_id bigint, tags text[])
 RETURNS text[]
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.settled_state(outcome text, retry boolean, attempts_left boolean, cancel boolean)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
AS $function$
    SELECT CASE
        WHEN outcome = 'succeeded' THEN 'succeeded'
        WHEN outcome = 'cancelled' OR cancel THEN 'cancelled'
        WHEN outcome IN ('interrupted', 'released') THEN 'queued'
        WHEN outcome = 'snoozed' OR retry AND attempts_left THEN 'scheduled'
        ELSE 'dead' END
$function$;

CREATE OR REPLACE FUNCTION pgsched.share_declare_turn()
 RETURNS boolean
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET lock_timeout TO '1s'
AS $function$
BEGIN
    PERFORM FROM pgsched.turns t WHERE t.name = 'declare' FOR SHARE;
    RETURN FOUND;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.shared_calendar_error(c pgsched.calendars)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT coalesce(pgsched.bad_text('name', c.name, 200), pgsched.bad_length('description', c.description, 65536),
        pgsched.bad_owner(c.owner))
$function$;

CREATE OR REPLACE FUNCTION pgsched.sheds_oldest(queue text)
 RETURNS boolean
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT EXISTS (SELECT FROM pgsched.queues q WHERE q.name = $1 AND q.on_full = 'shed_oldest')
$function$;

CREATE OR REPLACE FUNCTION pgsched.similar_zones(zone text)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET standard_conforming_strings TO 'on'
AS $function$
    SELECT pgsched.did_you_mean(zone, ARRAY(
        SELECT ltrim(r.region || '/' || z.place, '/')
        FROM unnest(ARRAY['', 'Africa', 'America', 'Antarctica', 'Arctic', 'Asia', 'Atlantic', 'Australia', 'Brazil', 'Canada',
                          'Chile', 'Etc', 'Europe', 'Indian', 'Mexico', 'Pacific', 'US']) WITH ORDINALITY r(region, rank),
            regexp_split_to_table(btrim(pgsched.listed_timezones(r.region), E' \n'), '\s+') z(place) ORDER BY r.rank, z.place))
$function$;

CREATE OR REPLACE FUNCTION pgsched.slot_token_error(kind text, task text, args jsonb)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT coalesce((array_agg(format(
            '%s: {slot:%s}: after %%, one of these is known: a A b B d f G H I j m M p S u U V w W y Y z Z %%', t.field, left(t.form, 60))
            ORDER BY t.given, t.place) FILTER (WHERE t.form !~ '^([^%]|%[aAbBdfGHIjmMpSuUVwWyYzZ%])*$'))[1],
        CASE WHEN count(*) > 1000 THEN 'args: more than 1,000 tokens that begin with {slot:' END)
    FROM (
        SELECT given.place AS given, given.field, m.token[1] AS form, m.place
        FROM (
            SELECT 0 AS place, 'task' AS field, task AS words
            UNION ALL
            SELECT s.place, 'args', s.value #>> '{}' FROM jsonb_path_query(
                CASE WHEN strpos(args::text, '{slot:') > 0 THEN args END, 'strict $.** ? (@.type() == "string")')
                WITH ORDINALITY s(value, place)
        ) given
        CROSS JOIN LATERAL regexp_matches(CASE WHEN strpos(given.words, '{slot:') > 0 THEN given.words ELSE '' END,
                                          '(?<![$])[{]slot:([^{}%]*%[^{}]*)[}]', 'g') WITH ORDINALITY m(token, place)
        WHERE kind IN ('command', 'shell', 'http')
    ) t
$function$;

CREATE OR REPLACE FUNCTION pgsched.slots(job text, since timestamp with time zone, until timestamp with time zone DEFAULT now(), n integer DEFAULT 1000)
 RETURNS TABLE(first_slot timestamp with time zone, last_slot timestamp with time zone, slots bigint, state text, run bigint, reason text)
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    j pgsched.jobs := pgsched.job_named(slots.job);
    problem text := CASE WHEN slots.since IS NULL THEN 'since: must not be null' WHEN slots.until IS NULL THEN 'until: must not be null' END;
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    PERFORM pgsched.refuse_many(slots.n, 10000);
    RETURN QUERY
    WITH found AS (
        (SELECT r.id, r.scheduled_at, r.covers_from, r.covers_until, r.covers_count, r.covers_state, r.covers_reason, r.state,
             coalesce(r.reason, split_part(r.error, E'\n', 1)) AS reason
         FROM pgsched.runs r WHERE r.job_id = j.id AND r.scheduled_at BETWEEN slots.since AND slots.until
         ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT slots.n)
        -- Stretches that reach into this time: their row has one of their slots, which may lie outside. Of runs that a
        -- person made all are read until the first other row, without a bound, as in row_of_slot.
        UNION ALL
        SELECT o.* FROM (
            (SELECT r.id, r.scheduled_at, r.covers_from, r.covers_until, r.covers_count, r.covers_state, r.covers_reason, r.state,
                 coalesce(r.reason, split_part(r.error, E'\n', 1))
             FROM pgsched.runs r WHERE r.job_id = j.id AND r.scheduled_at > slots.until ORDER BY r.job_id, r.scheduled_at LIMIT 1000)
            UNION ALL
            (SELECT r.id, r.scheduled_at, r.covers_from, r.covers_until, r.covers_count, r.covers_state, r.covers_reason, r.state,
                 coalesce(r.reason, split_part(r.error, E'\n', 1))
             FROM pgsched.runs r WHERE r.job_id = j.id AND r.scheduled_at < slots.since
                 AND (r.origin = 'schedule' OR r.covers_from IS NOT NULL)
             ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 1)) o
        WHERE o.covers_from <= slots.until AND o.covers_until >= slots.since
    )
    SELECT s.* FROM (
        SELECT coalesce(f.covers_from, f.scheduled_at) AS first_slot,
            greatest(f.covers_until, f.scheduled_at) AS last_slot, coalesce(f.covers_count, 1), f.state, f.id, f.reason
        FROM found f WHERE f.covers_state IS NULL
        UNION ALL  -- a row that was revived for its own slot stands for the others as it was before
        SELECT f.scheduled_at, f.scheduled_at, 1, f.state, f.id, f.reason FROM found f
        WHERE f.covers_state IS NOT NULL AND f.scheduled_at BETWEEN slots.since AND slots.until
        UNION ALL
        SELECT f.covers_from, f.covers_until, f.covers_count, f.covers_state, f.id, f.covers_reason FROM found f
        WHERE f.covers_state IS NOT NULL
        UNION ALL
        SELECT CASE WHEN p.schedule IS NULL THEN p.until_at ELSE p.after_at END, p.until_at, CASE WHEN p.schedule IS NULL THEN 1 END,
            p.state, NULL, p.reason || '. The leader has not recorded it yet'
        FROM pgsched.passed_over p WHERE p.job_id = j.id AND p.after_at < slots.until AND p.until_at >= slots.since
    ) s ORDER BY s.last_slot DESC, s.first_slot LIMIT slots.n;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.sql_args_error(args jsonb)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE
        WHEN jsonb_typeof(args) = 'array' AND args <> '[]' THEN 'args: a sql job takes a JSON object'
        WHEN args ? 'dsn' AND (jsonb_typeof(args -> 'dsn') <> 'string' OR args ->> 'dsn' !~ '^[a-z0-9_-]{1,63}$') THEN
            'args.dsn: expected the name of a database that workers know (--sql-dsn): lower-case letters, digits, - and _'
        WHEN EXISTS (SELECT FROM jsonb_object_keys(CASE jsonb_typeof(args) WHEN 'object' THEN args ELSE '{}' END) k
                     WHERE starts_with(k, 'pgsched_')) THEN
            (SELECT format('args.%s: names that begin with pgsched_ are set by pgsched itself', left(min(k), 60))
             FROM jsonb_object_keys(args) k WHERE starts_with(k, 'pgsched_'))
    END
$function$;

CREATE OR REPLACE FUNCTION pgsched.store_advance(root text, count bigint, added bigint)
 RETURNS pgsched.store_roots
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    r pgsched.store_roots;
BEGIN
    UPDATE pgsched.store_roots o SET version = o.version + count, keys = o.keys + added, changed_at = clock_timestamp(), kept_after = CASE
        WHEN o.version + count - o.kept_after >= 1100 THEN o.version + count - 1000 ELSE o.kept_after END
    WHERE o.root = store_advance.root RETURNING * INTO r;
    IF r.version - r.kept_after = 1000 THEN
        DELETE FROM pgsched.store_changes c WHERE c.root = r.root AND c.version <= r.kept_after;
    END IF;
    -- commits that notify follow one another, in the whole server; so nobody notifies who is not listened to
    PERFORM pgsched.notify(pgsched.store_channel(r.root), '') WHERE r.watched_until > clock_timestamp();
    RETURN r;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.store_channel(root text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT 'pgsched_store_' || md5(root)
$function$;

CREATE OR REPLACE FUNCTION pgsched.store_drop(root text, sessions bigint[], most bigint DEFAULT NULL::bigint)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    r pgsched.store_roots;
    gone text[];
    count bigint;
BEGIN
    IF cardinality(sessions) = 0 THEN
        RETURN 0;
    END IF;
    WITH deleted AS (
        DELETE FROM pgsched.store k WHERE k.key IN (
            SELECT f.key FROM pgsched.store f WHERE f.root = store_drop.root AND f.session = ANY (sessions) LIMIT most)
        RETURNING k.key)
    SELECT array_agg(d.key ORDER BY d.key) INTO gone FROM deleted d;
    count := coalesce(cardinality(gone), 0);
    IF count > 0 THEN
        r := pgsched.store_advance(store_drop.root, count, -count);
        INSERT INTO pgsched.store_changes (root, version, key)
        SELECT r.root, r.version - count + g.n, g.key FROM unnest(gone) WITH ORDINALITY AS g(key, n)
        WHERE r.version - count + g.n > r.kept_after;
        PERFORM pgsched.barriers_settle(store_drop.root, gone);
    END IF;
    RETURN count;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.store_forget(root text, most bigint DEFAULT NULL::bigint)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    removed bigint;
BEGIN
    -- a renewal that was sent in time and is not committed yet has locked the row
    UPDATE pgsched.sessions s SET ended_at = clock_timestamp() WHERE s.id IN (
        SELECT e.id FROM pgsched.sessions e
        WHERE e.id IN (SELECT k.session FROM pgsched.store k WHERE k.root = store_forget.root AND k.session IS NOT NULL)
          AND e.ended_at IS NULL AND e.lease_until <= clock_timestamp() FOR UPDATE SKIP LOCKED);
    removed := pgsched.store_drop(store_forget.root, ARRAY(
        SELECT s.id FROM pgsched.sessions s
        WHERE s.id IN (SELECT k.session FROM pgsched.store k WHERE k.root = store_forget.root AND k.session IS NOT NULL)
          AND s.ended_at IS NOT NULL), most);
    UPDATE pgsched.store_roots o SET look_at = (
        SELECT min(CASE WHEN s.ended_at IS NULL THEN s.lease_until ELSE s.ended_at END) FROM pgsched.sessions s
        WHERE s.id IN (SELECT k.session FROM pgsched.store k WHERE k.root = store_forget.root AND k.session IS NOT NULL))
    WHERE o.root = store_forget.root;
    RETURN removed;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.store_lock(root text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    r pgsched.store_roots;
    number bigint;
    highest bigint;
BEGIN
    PERFORM pgsched.commit_durably();
    LOOP
        SELECT * INTO r FROM pgsched.store_roots o WHERE o.root = store_lock.root FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO pgsched.store_roots AS o (root, owner) VALUES (store_lock.root, pgsched.caller())
        ON CONFLICT DO NOTHING RETURNING o.number INTO number;
        IF number IS NOT NULL AND NOT pgsched.has_room('store_roots', pgsched.caller(), number, 10000) THEN
            PERFORM pgsched.raise_bad_value(format('key: role "%s" has 10000 first elements of keys, and may have no more: use'
                ' keys such as app/name', pgsched.caller()), 'store');
        END IF;
        -- a root with this name may have been deleted: the versions of the new one are higher
        SELECT v.last_value INTO highest FROM pgsched.store_versions v;
        UPDATE pgsched.store_roots o SET version = highest, kept_after = highest WHERE o.root = store_lock.root AND o.version = 0 AND highest > 0;
    END LOOP;
    IF r.look_at <= clock_timestamp() THEN
        PERFORM pgsched.store_forget(store_lock.root);
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.store_root(key text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT split_part(key, '/', 1)
$function$;

CREATE OR REPLACE FUNCTION pgsched.store_write(root text, key text, value jsonb, session bigint)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    r pgsched.store_roots;
    added integer := 0;
BEGIN
    IF value IS NULL THEN
        DELETE FROM pgsched.store k WHERE k.key = store_write.key;
        added := -1;
    ELSIF NOT EXISTS (SELECT FROM pgsched.store k WHERE k.key = store_write.key) THEN
        added := 1;
    END IF;
    r := pgsched.store_advance(root, 1, added);
    IF added = 1 AND r.keys > 100000 THEN
        PERFORM pgsched.raise_bad_value(format('key: there are 100000 keys under "%s", and can be no more', root), 'store');
    END IF;
    IF value IS NOT NULL THEN
        INSERT INTO pgsched.store AS k (key, root, value, version, revision, session)
        VALUES (store_write.key, store_write.root, store_write.value, r.version, 1, store_write.session)
        ON CONFLICT ON CONSTRAINT store_pkey DO UPDATE SET value = EXCLUDED.value, version = EXCLUDED.version,
            revision = k.revision + 1, session = EXCLUDED.session, changed_at = clock_timestamp();
    END IF;
    IF session IS NOT NULL THEN
        UPDATE pgsched.store_roots o SET look_at = s.lease_until FROM pgsched.sessions s
        WHERE o.root = r.root AND s.id = store_write.session AND (o.look_at IS NULL OR o.look_at > s.lease_until);
    END IF;
    INSERT INTO pgsched.store_changes (root, version, key, value) VALUES (r.root, r.version, store_write.key, store_write.value);
    IF value IS NULL THEN
        PERFORM pgsched.barriers_settle(r.root, ARRAY[key]);
    END IF;
    RETURN r.version;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.stretch(r pgsched.runs)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT format('%s from %s to %s', coalesce(r.covers_count || ' slots', 'the slots'), pgsched.utc(r.covers_from), pgsched.utc(r.covers_until))
$function$;

CREATE OR REPLACE FUNCTION pgsched.sweep_sessions(most integer, of_owner name DEFAULT NULL::name, ids bigint[] DEFAULT NULL::bigint[])
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    found bigint[];
    one text;
    dropped bigint := 0;
BEGIN
    PERFORM pgsched.commit_durably();
    found := ARRAY(
        SELECT s.id FROM pgsched.sessions s
        WHERE (of_owner IS NULL OR s.owner = of_owner) AND (ids IS NULL OR s.id = ANY (ids))
          AND (s.ended_at IS NOT NULL OR s.lease_until <= clock_timestamp())
        LIMIT most FOR NO KEY UPDATE SKIP LOCKED);
    IF cardinality(found) = 0 THEN
        RETURN 0;
    END IF;
    UPDATE pgsched.sessions s SET ended_at = clock_timestamp() WHERE s.id = ANY (found) AND s.ended_at IS NULL;
    PERFORM pgsched.leave_lines(found);
    FOR one IN SELECT DISTINCT k.root FROM pgsched.store k WHERE k.session = ANY (found) ORDER BY k.root LOOP
        CONTINUE WHEN NOT EXISTS (SELECT FROM pgsched.store_roots r WHERE r.root = one FOR NO KEY UPDATE SKIP LOCKED);
        dropped := dropped + pgsched.store_drop(one, found, 1000 - dropped);
        EXIT WHEN dropped = 1000;  -- the rest the next time
    END LOOP;
    PERFORM pgsched.session_drop(one_of_them) FROM unnest(found) AS f(one_of_them);
    RETURN cardinality(found);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.take_declare_turn()
 RETURNS boolean
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET lock_timeout TO '5s'
AS $function$
BEGIN
    PERFORM pgsched.take_turn('declare');
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.take_key(scope text, key text, task text, expires_at timestamp with time zone, OUT run_id bigint, OUT by_task text)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    holder name;
BEGIN
    LOOP
        INSERT INTO pgsched.kept_keys (scope, key, task, expires_at)
        VALUES (take_key.scope, take_key.key, take_key.task, take_key.expires_at)
        ON CONFLICT (scope, key) DO NOTHING;
        EXIT WHEN FOUND;
        SELECT k.run_id, k.task, k.owner INTO take_key.run_id, take_key.by_task, holder FROM pgsched.kept_keys k
        WHERE k.scope = take_key.scope AND k.key = take_key.key AND k.expires_at > clock_timestamp()
            AND k.run_id IS NOT NULL;
        IF FOUND THEN
            -- null: there are no roles, or it is from before there were; then it gives no second run to anybody
            PERFORM pgsched.refuse_others(format('the %s "%s"', CASE take_key.scope WHEN 'idempotency'
                THEN 'idempotency_key' ELSE 'unique_key' END, left(take_key.key, 60)), holder) WHERE holder IS NOT NULL;
            EXIT;
        END IF;
        -- one that has expired, or stands for no run, is taken over by one of those who come; the others find it taken
        UPDATE pgsched.kept_keys k SET run_id = NULL, task = take_key.task, created_at = clock_timestamp(),
            expires_at = take_key.expires_at, state = NULL, result = NULL, error = NULL, finished_at = NULL
        WHERE k.scope = take_key.scope AND k.key = take_key.key
            AND (k.expires_at <= clock_timestamp() OR k.run_id IS NULL);
        EXIT WHEN FOUND;
    END LOOP;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.take_options(r pgsched.runs, more jsonb)
 RETURNS pgsched.runs
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    r.kill_after := coalesce(r.kill_after, make_interval(secs => (more ->> 'kill_after')::float8));
    r.backoff := coalesce(r.backoff, more ->> 'backoff');
    r.backoff_base := coalesce(r.backoff_base, make_interval(secs => (more ->> 'backoff_base')::float8));
    r.backoff_max := coalesce(r.backoff_max, make_interval(secs => (more ->> 'backoff_max')::float8));
    r.backoff_jitter := coalesce(r.backoff_jitter, (more ->> 'backoff_jitter')::float8);
    IF r.keep IS NULL AND more ->> 'keep' IS NOT NULL
        AND (r.job_id IS NULL OR EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = r.job_id AND j.keep IS NULL)) THEN
        r.keep := make_interval(secs => (more ->> 'keep')::float8);
    END IF;
    IF r.expires_at IS NULL AND r.finished_at IS NULL AND more ->> 'expires' IS NOT NULL THEN
        r.expires_at := least('9000-01-01 00:00Z', make_interval(secs => (more ->> 'expires')::float8)
            + CASE WHEN r.available_at < '8998-01-01 00:00Z' THEN r.available_at
                   ELSE coalesce(pgsched.not_before_of(r.options), clock_timestamp()) END);
    END IF;
    IF more ?| '{concurrency,rate}' THEN
        r.concurrency_key := pgsched.limited_key(r.task, more, r.concurrency_key);
    END IF;
    RETURN r;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.take_queued_key(key text, task text)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    held record;
    r record;
    told text;
BEGIN
    LOOP
        INSERT INTO pgsched.kept_keys (scope, key, task, expires_at)
        VALUES ('while_queued', take_queued_key.key, take_queued_key.task, clock_timestamp() + interval '1 day')
        ON CONFLICT ON CONSTRAINT kept_keys_pkey DO NOTHING;
        IF FOUND THEN
            RETURN NULL;
        END IF;
        SELECT k.run_id, k.owner INTO held FROM pgsched.kept_keys k
        WHERE k.scope = 'while_queued' AND k.key = take_queued_key.key;
        CONTINUE WHEN NOT FOUND;
        SELECT o.owner INTO r FROM pgsched.runs o WHERE o.id = held.run_id
            AND pgsched.is_unclaimed(o.state, o.attempt, o.token, o.suspect, o.reruns);
        IF FOUND THEN
            -- before the lock: nobody locks the run of somebody else
            PERFORM pgsched.refuse_others(format('the unique_key "%s"', left(take_queued_key.key, 60)), r.owner);
            SELECT o.queue, o.state INTO r FROM pgsched.runs o WHERE o.id = held.run_id
                AND pgsched.is_unclaimed(o.state, o.attempt, o.token, o.suspect, o.reruns) FOR KEY SHARE;
            IF FOUND THEN
                IF r.state = 'queued' AND pgsched.may_be_asleep() THEN  -- a worker may pass it over while it is locked
                    told := pgsched.tell_workers(r.queue);
                END IF;
                RETURN held.run_id;
            END IF;
        END IF;
        UPDATE pgsched.kept_keys k SET run_id = NULL, task = take_queued_key.task, created_at = clock_timestamp(),
            expires_at = clock_timestamp() + interval '1 day', owner = DEFAULT
        WHERE k.scope = 'while_queued' AND k.key = take_queued_key.key AND k.run_id IS NOT DISTINCT FROM held.run_id;
        IF FOUND THEN
            RETURN NULL;
        END IF;
    END LOOP;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.take_turn(name text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM FROM pgsched.turns t WHERE t.name = take_turn.name FOR NO KEY UPDATE;
    IF NOT FOUND THEN  -- a dump of the schema alone lacks the rows
        INSERT INTO pgsched.turns VALUES (take_turn.name) ON CONFLICT DO NOTHING;
        PERFORM FROM pgsched.turns t WHERE t.name = take_turn.name FOR NO KEY UPDATE;
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.task_keys(task text, needed boolean, OUT unique_key text, OUT unique_by text[], OUT unique_scope text, OUT on_conflict text, OUT debounce_max interval, OUT delay interval, OUT idempotency_retention interval, OUT parameters text[], OUT defaults jsonb)
 RETURNS record
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    options jsonb;
    properties jsonb;
BEGIN
    SELECT t.options, CASE WHEN (task_keys.needed OR t.options ?| '{unique_key,unique_by}')
            AND jsonb_typeof(t.schema -> 'properties') = 'object' THEN t.schema -> 'properties' END
    INTO options, properties FROM pgsched.tasks t
    WHERE t.task = task_keys.task ORDER BY t.first_seen_at DESC, t.app LIMIT 1;
    unique_key := options ->> 'unique_key';
    unique_by := CASE WHEN coalesce(options -> 'unique_by', 'null') <> 'null'
                      THEN ARRAY(SELECT jsonb_array_elements_text(options -> 'unique_by')) END;
    unique_scope := options ->> 'unique_scope';
    on_conflict := options ->> 'on_conflict';
    debounce_max := make_interval(secs => (options ->> 'debounce_max')::float8);
    delay := make_interval(secs => (options ->> 'delay')::float8);
    idempotency_retention := make_interval(secs => (options ->> 'idempotency_retention')::float8);
    parameters := ARRAY(SELECT jsonb_object_keys(properties));
    defaults := (SELECT jsonb_object_agg(p.key, p.value -> 'default') FROM jsonb_each(properties) p
                 WHERE jsonb_typeof(p.value) = 'object' AND p.value ? 'default');
END $function$;

CREATE OR REPLACE FUNCTION pgsched.task_options(task text, OUT queue text, OUT priority smallint, OUT max_attempts integer, OUT timeout interval, OUT tags text[], OUT concurrency_key text, OUT more jsonb)
 RETURNS record
 LANGUAGE plpgsql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    options jsonb := (SELECT t.options FROM pgsched.tasks t WHERE t.task = task_options.task
                      ORDER BY t.first_seen_at DESC, t.app LIMIT 1);
BEGIN
    queue := options ->> 'queue';
    priority := (options ->> 'priority')::smallint;
    max_attempts := (options ->> 'max_attempts')::integer;
    timeout := make_interval(secs => (options ->> 'timeout')::float8);
    tags := CASE WHEN options -> 'tags' IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(options -> 'tags')) END;
    concurrency_key := options ->> 'concurrency_key';
    more := nullif(options - '{queue,priority,max_attempts,timeout,tags,concurrency_key,delay,idempotency_retention}'::text[],
                   '{}');
END $function$;

CREATE OR REPLACE FUNCTION pgsched.task_options_error(options jsonb)
 RETURNS text
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    tags text[];
BEGIN
    IF jsonb_typeof(options) IS DISTINCT FROM 'object' THEN
        RETURN 'options: expected an object';
    END IF;
    tags := ARRAY(SELECT jsonb_array_elements_text(nullif(options -> 'tags', 'null')));
    RETURN coalesce(
        CASE WHEN options ->> 'queue' IS NOT NULL THEN pgsched.bad_text('queue', options ->> 'queue', 100) END,
        CASE WHEN options ->> 'priority' IS NOT NULL
             THEN pgsched.out_of_range('priority', (options ->> 'priority')::integer, 0, 9) END,
        CASE WHEN options ->> 'max_attempts' IS NOT NULL
             THEN pgsched.out_of_range('max_attempts', (options ->> 'max_attempts')::integer, 1, 1000) END,
        pgsched.bad_interval('timeout', make_interval(secs => (options ->> 'timeout')::float8), '1 millisecond'),
        pgsched.bad_tags(tags),
        CASE WHEN options ->> 'concurrency_key' IS NOT NULL
             THEN coalesce(pgsched.bad_text('concurrency_key', options ->> 'concurrency_key', 200),
                           CASE WHEN options ->> 'concurrency_key' ~ '^job(:|$)'
                                THEN 'concurrency_key: "job" is for the limits of jobs' END) END,
        pgsched.bad_interval('kill_after', make_interval(secs => (options ->> 'kill_after')::float8), '0'),
        CASE WHEN options ->> 'backoff' IS NOT NULL
             THEN pgsched.not_one_of('backoff', options ->> 'backoff', ARRAY['exponential', 'fixed', 'linear']) END,
        pgsched.bad_interval('backoff_base', make_interval(secs => (options ->> 'backoff_base')::float8), '0'),
        pgsched.bad_interval('backoff_max', make_interval(secs => (options ->> 'backoff_max')::float8), '0'),
        CASE WHEN options ->> 'backoff_jitter' IS NOT NULL
             THEN pgsched.out_of_range('backoff_jitter', (options ->> 'backoff_jitter')::numeric, 0, 1) END,
        pgsched.bad_interval('delay', make_interval(secs => (options ->> 'delay')::float8), '0'),
        pgsched.bad_interval('idempotency_retention',
            make_interval(secs => (options ->> 'idempotency_retention')::float8), '1 second'),
        pgsched.bad_interval('expires', make_interval(secs => (options ->> 'expires')::float8), '1 millisecond'),
        pgsched.bad_interval('keep', make_interval(secs => (options ->> 'keep')::float8), '0'),
        CASE WHEN options ->> 'unique_key' IS NOT NULL
             THEN pgsched.bad_text('unique_key', options ->> 'unique_key', 500) END,
        CASE WHEN coalesce(options -> 'unique_by', 'null') <> 'null' AND jsonb_typeof(options -> 'unique_by') <> 'array'
             THEN 'unique_by: expected a list of the names of arguments' END,
        CASE WHEN options ->> 'unique_scope' IS NOT NULL
             THEN pgsched.unique_scope_error(options ->> 'unique_scope') END,
        CASE WHEN options ->> 'on_conflict' IS NOT NULL
             THEN pgsched.not_one_of('on_conflict', options ->> 'on_conflict',
                                     ARRAY['return', 'reject', 'replace', 'keep_time', 'merge']) END,
        pgsched.bad_interval('debounce_max', make_interval(secs => (options ->> 'debounce_max')::float8), '0'),
        CASE WHEN options ->> 'concurrency' IS NOT NULL
             THEN pgsched.out_of_range('concurrency', (options ->> 'concurrency')::integer, 0, 1000000) END,
        CASE WHEN options ->> 'rate' IS NOT NULL
             THEN coalesce(pgsched.out_of_range('rate', (options ->> 'rate')::integer, 1, 1000000000),
                           CASE WHEN options ->> 'rate_period' IS NULL THEN 'rate_period: must not be null' END) END,
        CASE WHEN make_interval(secs => (options ->> 'rate_period')::float8) NOT BETWEEN '1 millisecond' AND '31 days'
             THEN 'rate_period: is not between 1 millisecond and 31 days' END);
EXCEPTION WHEN data_exception THEN
    RETURN format('options: %s', SQLERRM);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.tell_leader(due timestamp with time zone DEFAULT NULL::timestamp with time zone)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF pg_sequence_last_value('pgsched.leader_looks_at')
        > date_part('epoch', greatest(due, clock_timestamp())) * 1000 THEN
        RETURN pgsched.tell_once('pgsched_leader', 'runs');
    END IF;
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.tell_once(channel text, payload text)
 RETURNS text
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION pgsched.tell_session(session bigint, token uuid)
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT pgsched.notify('pgsched_session_' || session, left(token::text, 18))
$function$;

CREATE OR REPLACE FUNCTION pgsched.tell_workers(queue text)
 RETURNS text
 LANGUAGE sql
AS $function$
    SELECT pgsched.tell_once('pgsched_runs', pgsched.queue_mark(queue))
$function$;

CREATE OR REPLACE FUNCTION pgsched.template_key(template text, args jsonb, defaults jsonb DEFAULT NULL::jsonb)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    problem text := CASE WHEN template IS NOT NULL THEN pgsched.args_error('task', args) END;
    made text;
BEGIN
    IF problem IS NOT NULL THEN  -- what is nested deeper than a run allows is not looked into
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    -- of two that match at one place the longer one is taken: a name in braces before the brace alone
    SELECT string_agg(CASE WHEN p.name IS NULL THEN p.part
            ELSE replace(pgsched.key_argument('unique_key', p.name, args, defaults)::text, chr(127), E'\\u007f') END,
            '' ORDER BY p.n) INTO made
    FROM (SELECT m[1] AS part, substring(m[1] FROM E'^\\{([^{}]+)\\}$') AS name, n
          FROM regexp_matches(template, E'(\\{[^{}]+\\}|\\{|[^{]+)', 'g') WITH ORDINALITY AS r(m, n)) p;
    RETURN CASE WHEN length(made) <= 500 THEN made
        ELSE left(made, 400) || ' ' || encode(sha256(convert_to(made, 'UTF8')), 'hex') END;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.timezone_error(zone text)
 RETURNS text
 LANGUAGE plpgsql
 STABLE STRICT
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET standard_conforming_strings TO 'on'
AS $function$
DECLARE
    region text := CASE WHEN strpos(zone, '/') > 0 THEN split_part(zone, '/', 1) ELSE '' END;
    place text := CASE WHEN region = '' THEN zone ELSE substr(zone, length(region) + 2) END;
    refused text := format('timezone: "%s" is not a known IANA zone', left(zone, 64));
BEGIN
    IF zone COLLATE "C" !~ '^[\x20-\x7e]*$' THEN
        RETURN 'timezone: only printable ASCII is accepted';
    ELSIF place <> '' AND strpos(place, ' ') = 0
        AND strpos(' ' || translate(pgsched.listed_timezones(region), E'\n', ' ') || ' ', ' ' || place || ' ') > 0 THEN
        RETURN NULL;
    -- A zone newer than the list has a region; anything without one is an abbreviation or a POSIX zone string.
    ELSIF length(zone) > 64 OR zone COLLATE "C" !~ '^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)+$' THEN
        RETURN refused || pgsched.similar_zones(zone);
    END IF;
    BEGIN
        -- Knows no case and takes POSIX strings, but is quick: the scan below is left to names that pass it.
        PERFORM now() AT TIME ZONE zone;
        IF EXISTS (SELECT FROM pg_timezone_names AS known WHERE known.name = zone) THEN
            RETURN NULL;
        END IF;
    EXCEPTION WHEN invalid_parameter_value THEN
        NULL;
    END;
    RETURN refused || pgsched.similar_zones(zone);
END $function$;

CREATE OR REPLACE FUNCTION pgsched.trigger(job text, args jsonb DEFAULT NULL::jsonb, overlap text DEFAULT 'allow'::text)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    j pgsched.jobs;
    problem text := pgsched.not_one_of('overlap', trigger.overlap,
        ARRAY['allow', 'skip', 'buffer_one', 'buffer_all', 'replace', 'terminate']);
    born_state text := 'queued';
    why text;
    new_id bigint;
BEGIN
    PERFORM pgsched.refuse_others(format('job "%s"', o.name), o.owner) FROM pgsched.jobs o WHERE o.name = trigger.job;
    IF problem IS NULL AND trigger.overlap <> 'allow' THEN
        -- a write, not only a lock: under REPEATABLE READ the second of two callers must fail, not count too few
        UPDATE pgsched.jobs SET run_count = run_count WHERE name = trigger.job RETURNING * INTO j;
    ELSE
        SELECT * INTO j FROM pgsched.jobs WHERE name = trigger.job FOR KEY SHARE;  -- against a delete, not the tick
    END IF;
    PERFORM pgsched.refuse_others(format('job "%s"', j.name), j.owner) WHERE j.id IS NOT NULL;
    problem := coalesce(problem, CASE WHEN trigger.args IS NOT NULL THEN pgsched.args_error(j.kind, trigger.args) END);
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    ELSIF j.id IS NULL THEN
        PERFORM pgsched.refuse_unknown_job(trigger.job);
    ELSIF trigger.overlap <> 'allow' THEN
        SELECT s.state, s.reason INTO born_state, why FROM pgsched.triggered_state(j, trigger.overlap) s;
    END IF;
    LOOP
        INSERT INTO pgsched.runs (job_id, scheduled_at, state, reason, finished_at, queue, priority, kind, task, args,
            origin, owner, max_attempts, timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter,
            options, tags, slot_zone, concurrency_key)
        VALUES (j.id, clock_timestamp(), born_state, why, CASE born_state WHEN 'skipped' THEN clock_timestamp() END,
            j.queue, j.priority, j.kind, j.task, coalesce(trigger.args, j.args), 'manual', j.owner, j.max_attempts,
            j.timeout, j.kill_after, j.backoff, j.backoff_base, j.backoff_max, j.backoff_jitter,
            pgsched.job_options(j), j.tags, nullif(j.timezone, 'UTC'),
            pgsched.run_key(j.id, j.concurrency_key, j.concurrency_limit, coalesce(trigger.args, j.args)))
        ON CONFLICT (job_id, scheduled_at) WHERE job_id IS NOT NULL DO NOTHING
        RETURNING id INTO new_id;
        -- two people in the same microsecond: the second one tries again
        EXIT WHEN new_id IS NOT NULL;
    END LOOP;
    PERFORM pgsched.note('triggered', 'job', j.name, jsonb_build_object('run', new_id));
    RETURN new_id;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.triggered_state(j pgsched.jobs, overlap text, OUT state text, OUT reason text)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
#variable_conflict use_column
DECLARE
    open_runs bigint;
    held bigint;
    newest bigint;
BEGIN
    SELECT count(*), count(*) FILTER (WHERE r.state = 'waiting' AND r.ready_at IS NULL AND NOT pgsched.waits_in_turn(r.reason)), max(r.id)
        INTO open_runs, held, newest
    FROM pgsched.runs r WHERE r.job_id = j.id AND r.phase < 3 /* open */ AND r.origin <> 'backfill';
    triggered_state.state := 'queued';
    IF open_runs = 0 THEN
        RETURN;
    ELSIF triggered_state.overlap IN ('replace', 'terminate') THEN
        PERFORM pgsched.end_open_runs(j.id, triggered_state.overlap = 'terminate', 'overlap: replaced by a triggered run');
        triggered_state.state := CASE triggered_state.overlap WHEN 'replace' THEN 'waiting' ELSE 'queued' END;
    ELSIF triggered_state.overlap = 'skip' THEN
        triggered_state.state := 'skipped';
        triggered_state.reason := format('overlap: run %s was not finished', newest);
    ELSIF held >= (CASE triggered_state.overlap WHEN 'buffer_one' THEN 1 ELSE j.max_buffer END) THEN
        triggered_state.state := 'skipped';
        triggered_state.reason := format('overlap: run %s was not finished and %s already waited', newest, held);
    ELSE
        triggered_state.state := 'waiting';
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.try_declare_turn()
 RETURNS boolean
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    PERFORM FROM pgsched.turns t WHERE t.name = 'declare' FOR NO KEY UPDATE SKIP LOCKED;
    RETURN FOUND;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.unique_bucket(unique_scope text, due timestamp with time zone, OUT name text, OUT ends_at timestamp with time zone)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET "IntervalStyle" TO 'postgres'
 SET "TimeZone" TO 'UTC'
AS $function$
DECLARE
    problem text := pgsched.unique_scope_error(unique_scope);
    period interval;
    starts_at timestamptz;
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    period := substring(unique_scope FROM E'\\((.+)\\)$')::interval;
    IF starts_with(unique_scope, 'sliding') THEN
        name := format('sliding %s', extract(epoch FROM period));
        ends_at := clock_timestamp() + period;
    ELSIF period IS NOT NULL THEN
        starts_at := date_bin(period, due, '2001-01-01 00:00Z');
        name := format('bucket %s %s', extract(epoch FROM period), extract(epoch FROM starts_at));
        ends_at := starts_at + period;
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.unique_scope_error(unique_scope text)
 RETURNS text
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET "IntervalStyle" TO 'postgres'
AS $function$
DECLARE
    wanted text := substring(unique_scope FROM E'^(?:bucket|sliding)\\((.+)\\)$');
    period interval;
BEGIN
    IF unique_scope IN ('while_active', 'while_queued') THEN
        RETURN NULL;
    END IF;
    BEGIN
        period := wanted::interval;
    EXCEPTION WHEN data_exception THEN
        wanted := NULL;
    END;
    RETURN CASE
        WHEN wanted IS NULL THEN format('unique_scope: "%s" is neither while_active nor while_queued,'
            ' bucket(a period, as in 1 hour) or sliding(a period)', left(unique_scope, 60))
        WHEN extract(month FROM period) <> 0 OR extract(year FROM period) <> 0 THEN
            'unique_scope: a period has no months or years: they differ in length'
        ELSE pgsched.bad_interval('unique_scope', period, '1 second') END;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.update_run(run_id bigint, priority integer DEFAULT NULL::integer, at timestamp with time zone DEFAULT NULL::timestamp with time zone, queue text DEFAULT NULL::text)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    r pgsched.runs;
    problem text := coalesce(
        CASE WHEN num_nonnulls(priority, at, queue) = 0 THEN 'priority: nothing to change: give priority, at or queue' END,
        CASE WHEN priority NOT BETWEEN 0 AND 9 THEN pgsched.out_of_range('priority', priority, 0, 9) END,
        CASE WHEN at >= '8998-01-01 00:00Z' THEN format('at: %s is not an instant between 1970 and 8997', at)
             WHEN at IS NOT NULL THEN pgsched.bad_instant('at', at) END);
    moved boolean;
    held boolean;
    bound_by name;
    changed pgsched.runs;
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    PERFORM pgsched.refuse_others(format('run %s', o.id), o.owner) FROM pgsched.runs o WHERE o.id = run_id;
    SELECT * INTO r FROM pgsched.runs WHERE id = run_id FOR NO KEY UPDATE;
    IF r.id IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.refuse_others(format('run %s', r.id), r.owner);
    held := r.state = 'waiting' AND r.ready_at IS NULL;
    IF r.phase >= 3 /* ended */ OR r.state = 'running' THEN
        PERFORM pgsched.raise_bad_value(format('state: run %s %s: only a run that has not started can be changed', r.id,
            CASE r.state WHEN 'running' THEN 'is running' ELSE 'has ended (' || r.state || ')' END), 'runs');
    ELSIF held AND at IS NOT NULL AND r.available_at < '8998-01-01 00:00Z' THEN
        PERFORM pgsched.raise_bad_value(format('at: run %s waits for another run of its job, which decides when it starts',
            r.id), 'runs');
    END IF;
    changed := r;
    IF at IS NOT NULL AND r.started_at IS NULL AND r.expires_at IS NOT NULL THEN
        changed.expires_at := least(r.expires_at + (greatest(at, clock_timestamp()) - greatest(r.created_at, CASE WHEN held
            THEN pgsched.not_before_of(r.options) ELSE r.available_at END)), '9000-01-01 00:00Z');
    END IF;
    changed.priority := coalesce(update_run.priority::smallint, r.priority);
    changed.queue := coalesce(update_run.queue, r.queue);
    moved := changed.queue <> r.queue;
    IF moved OR changed.priority <> r.priority THEN
        bound_by := pgsched.bounding_policy();
        IF bound_by IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = format('permission denied: the policy "%s"'
                ' bounds the runs of role "%s": cancel run %s and enqueue it again instead of changing its queue or'
                ' priority', bound_by, pgsched.caller(), r.id);
        END IF;
    END IF;
    IF held THEN
        IF at IS NOT NULL THEN
            changed.options := coalesce(r.options, '{}') || jsonb_build_object('not_before', at);
        END IF;
    ELSE
        changed.available_at := coalesce(at, r.available_at);
        IF r.state <> 'scheduled' AND changed.available_at > clock_timestamp() THEN
            changed.state := 'scheduled';  -- the way back to queued is the leader's
            changed.ready_at := NULL;
        ELSIF moved AND r.state <> 'scheduled' THEN
            changed.state := pgsched.entry_state(changed.queue, r.concurrency_key);
            changed.ready_at := CASE changed.state WHEN 'waiting' THEN coalesce(r.ready_at, clock_timestamp()) END;
        END IF;
    END IF;
    UPDATE pgsched.runs SET priority = changed.priority, queue = changed.queue, available_at = changed.available_at,
        state = changed.state, ready_at = changed.ready_at, options = changed.options, expires_at = changed.expires_at
    WHERE id = r.id;
    PERFORM pgsched.note('changed', 'run', r.id::text, pgsched.audited_change(
        jsonb_build_object('priority', r.priority, 'queue', r.queue, 'available_at', r.available_at, 'options', r.options,
                           'expires_at', r.expires_at),
        jsonb_build_object('priority', changed.priority, 'queue', changed.queue, 'available_at', changed.available_at,
                           'options', changed.options, 'expires_at', changed.expires_at)));
    PERFORM CASE changed.state WHEN 'queued' THEN pgsched.notify('pgsched_runs', pgsched.queue_mark(changed.queue))
        ELSE pgsched.tell_leader() END;
    RETURN changed.state;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.uses_by_grant(name text, role name)
 RETURNS boolean
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT EXISTS (
        SELECT FROM pgsched.name_grants g JOIN pg_roles r ON r.rolname = g.role JOIN pg_roles m ON m.rolname = uses_by_grant.role
        WHERE starts_with(uses_by_grant.name, g.prefix) AND pg_has_role(m.oid, r.oid, 'MEMBER'))
$function$;

CREATE OR REPLACE FUNCTION pgsched.utc(moment timestamp with time zone)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
$function$;

CREATE OR REPLACE FUNCTION pgsched.wait_again(run_ids bigint[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
BEGIN
    UPDATE pgsched.dependencies d SET
        state = CASE WHEN p.state IS NULL OR p.state = 'succeeded' OR p.phase >= 3 /* ended */ AND d.on_failure = 'run_anyway'
                     THEN 'met' ELSE 'open' END,
        on_failure = CASE WHEN p.phase >= 3 /* ended */ AND p.state <> 'succeeded' AND d.on_failure = 'cancel'
                          THEN 'wait' ELSE d.on_failure END
    FROM pgsched.dependencies e LEFT JOIN LATERAL (SELECT * FROM pgsched.runs r WHERE r.id = e.parent_id OFFSET 0) p ON true
    WHERE e.run_id = ANY (run_ids) AND d.run_id = e.run_id AND d.parent_id = e.parent_id;
    UPDATE pgsched.runs r SET state = 'waiting', ready_at = NULL, available_at = '8999-01-01 00:00Z'
    FROM (SELECT d.run_id FROM pgsched.dependencies d WHERE d.run_id = ANY (run_ids) GROUP BY d.run_id
          HAVING bool_or(d.state = 'open' AND NOT d.any_of)
              OR bool_or(d.any_of) AND NOT bool_or(d.any_of AND d.state = 'met')) held
    WHERE r.id = held.run_id AND r.state IN ('waiting', 'queued');
    PERFORM pgsched.tell_leader() WHERE FOUND;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.wait_for_rows(most interval)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    before text := current_setting('lock_timeout');
BEGIN
    IF most < interval '20 days' AND (before::interval = interval '0' OR before::interval > most) THEN
        PERFORM set_config('lock_timeout', ceil(extract(epoch FROM most) * 1000)::text, true);
    END IF;
    RETURN before;
END $function$;

CREATE OR REPLACE FUNCTION pgsched.waited_for(r pgsched.runs)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT string_agg(o.words, ', ' ORDER BY o.place) FILTER (WHERE o.place <= 3)
        || CASE WHEN max(o.place) > 3 THEN format(' and %s more', max(o.place) - 3) ELSE '' END
    FROM (
        SELECT w.words, row_number() OVER (ORDER BY w.rank, w.id) AS place FROM (
            SELECT 1 AS rank, p.id, format('run %s (%s)', p.id, concat_ws(', ', j.name, p.state)) AS words
            FROM pgsched.dependencies d JOIN pgsched.runs p ON p.id = d.parent_id LEFT JOIN pgsched.jobs j ON j.id = p.job_id
            WHERE r.available_at >= '8998-01-01 00:00Z' AND d.run_id = r.id AND d.state = 'open'
            UNION ALL
            SELECT 2, a.job_id, CASE r.options ->> 'after_match' WHEN 'latest' THEN 'the newest slot of '
                WHEN 'since_last' THEN 'a success of ' ELSE 'the same slot of ' END || coalesce(j.name, 'job ' || a.job_id)
            FROM pgsched.after_jobs_of(r.options) a(job_id) LEFT JOIN pgsched.jobs j ON j.id = a.job_id
            WHERE r.available_at = '8998-01-01 00:00Z'
                AND (r.options ? 'after_match'
                     OR NOT EXISTS (SELECT FROM pgsched.runs o WHERE o.job_id = a.job_id AND o.scheduled_at = r.scheduled_at))
            UNION ALL  -- the job's own open runs, where its policy holds this one
            SELECT 3, o.id, format('run %s (%s, slot %s)', o.id, o.state, pgsched.utc(o.scheduled_at))
            FROM (SELECT q.id, q.state, q.scheduled_at, q.origin FROM pgsched.runs q
                  WHERE q.job_id = r.job_id AND q.phase < 3 /* open */ AND r.available_at < '8998-01-01 00:00Z' LIMIT 1000) o
            WHERE o.id <> r.id AND o.origin <> 'backfill'
                AND (o.state <> 'waiting' OR (o.scheduled_at, o.id) < (r.scheduled_at, r.id))) w
    ) o
$function$;

CREATE OR REPLACE FUNCTION pgsched.waits_in_turn(reason text)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE
AS $function$
    SELECT coalesce(reason = 'catch_up: late, and one after the other', false)
$function$;

CREATE OR REPLACE FUNCTION pgsched.wall_clock(moment timestamp with time zone, east interval)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT to_char((moment AT TIME ZONE 'UTC') + east, 'Dy YYYY-MM-DD HH24:MI:SS')
        || CASE WHEN east < '0' THEN ' -' ELSE ' +' END
        || to_char(make_interval(secs => abs(extract(epoch FROM east))::float8), 'HH24:MI')
$function$;

CREATE OR REPLACE FUNCTION pgsched.workers_asleep(seconds double precision)
 RETURNS double precision
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    now_ms bigint := (date_part('epoch', clock_timestamp()) * 1000)::bigint;
    asked_ms bigint := (least(greatest(seconds, 0), 86400) * 1000)::bigint;
    until_ms bigint := coalesce(pg_sequence_last_value('pgsched.asleep_until'), 0);
BEGIN
    IF until_ms < now_ms + asked_ms * 3 / 5 OR until_ms > now_ms + 2 * 86400000 THEN
        until_ms := setval('pgsched.asleep_until', now_ms + asked_ms);
    END IF;
    RETURN (until_ms - now_ms) / 1000.0;
END $function$;

-- aggregates

CREATE AGGREGATE pgsched.histogram(integer,numeric) (SFUNC = pgsched.add_to_bin, STYPE = bigint[], INITCOND = '{0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}');

-- indexes

CREATE INDEX alert_deliveries_due ON pgsched.alert_deliveries USING btree (next_at) WHERE delivered_at IS NULL;
CREATE INDEX alerts_closed ON pgsched.alerts USING btree (closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX alerts_of_job ON pgsched.alerts USING btree (job_id, id);
CREATE UNIQUE INDEX alerts_open ON pgsched.alerts USING btree (job_id, kind) WHERE closed_at IS NULL;
CREATE INDEX audit_at ON pgsched.audit USING btree (at);
CREATE INDEX audit_of ON pgsched.audit USING btree (what, name, id);
CREATE INDEX backfills_open ON pgsched.backfills USING btree (id) WHERE finished_at IS NULL;
CREATE INDEX calendar_times_calendar ON pgsched.calendar_times USING btree (calendar, from_date);
CREATE INDEX calendars_replan ON pgsched.calendars USING btree (name) WHERE replan;
CREATE INDEX dependencies_any ON pgsched.dependencies USING btree (run_id, state, parent_id) WHERE any_of;
CREATE INDEX dependencies_backward ON pgsched.dependencies USING btree (run_id) WHERE parent_id > run_id AND state = 'open'::text;
CREATE INDEX dependencies_parent ON pgsched.dependencies USING btree (parent_id);
CREATE INDEX dependencies_unmet ON pgsched.dependencies USING btree (run_id, state, parent_id) WHERE state <> 'met'::text AND NOT any_of;
CREATE UNIQUE INDEX file_entries_declared ON pgsched.file_entries USING btree (what, name) WHERE what <> 'done'::text;
CREATE INDEX item_consumers_of_session ON pgsched.item_consumers USING btree (session);
CREATE INDEX item_consumers_waiting ON pgsched.item_consumers USING btree (queue, waiting_since) WHERE waiting_since IS NOT NULL;
CREATE INDEX item_queues_of_owner ON pgsched.item_queues USING btree (owner);
CREATE INDEX items_held ON pgsched.items USING btree (queue, session, token) WHERE session IS NOT NULL;
CREATE INDEX items_line ON pgsched.items USING btree (queue, priority, available_at, id) WHERE session IS NULL;
CREATE INDEX jobs_calendar ON pgsched.jobs USING btree (calendar, id) WHERE calendar IS NOT NULL;
CREATE INDEX jobs_declared ON pgsched.jobs USING btree (declared_by) WHERE declared_by IS NOT NULL;
CREATE INDEX jobs_done_once ON pgsched.jobs USING btree (id) WHERE delete_after_run AND schedule IS NULL AND next_run_at IS NULL;
CREATE INDEX jobs_due ON pgsched.jobs USING btree (next_run_at) WHERE NOT paused AND next_run_at IS NOT NULL;
CREATE INDEX jobs_in_error ON pgsched.jobs USING btree (id) WHERE error IS NOT NULL;
CREATE INDEX jobs_keep ON pgsched.jobs USING btree (id) WHERE keep IS NOT NULL;
CREATE INDEX jobs_pausing ON pgsched.jobs USING btree (id) WHERE pause_after_failures IS NOT NULL AND NOT paused;
CREATE INDEX jobs_watched ON pgsched.jobs USING btree (id) WHERE alert_after_failures IS NOT NULL OR max_lateness IS NOT NULL OR max_duration IS NOT NULL OR expect_every IS NOT NULL OR finish_by IS NOT NULL;
CREATE INDEX kept_keys_expires_at ON pgsched.kept_keys USING btree (expires_at);
CREATE INDEX kept_keys_met ON pgsched.kept_keys USING btree (run_id) WHERE met;
CREATE INDEX limits_to_apply ON pgsched.limits USING btree (name) WHERE applied_at IS NULL;
CREATE UNIQUE INDEX lock_places_held ON pgsched.lock_places USING btree (lock, fence) WHERE fence IS NOT NULL;
CREATE INDEX lock_places_of_session ON pgsched.lock_places USING btree (session);
CREATE UNIQUE INDEX lock_places_one_holder ON pgsched.lock_places USING btree (lock) WHERE fence IS NOT NULL AND mode = 'exclusive'::text;
CREATE INDEX locks_of_owner ON pgsched.locks USING btree (owner);
CREATE INDEX queues_to_apply ON pgsched.queues USING btree (name) WHERE applied_at IS NULL;
CREATE INDEX rollups_of_job ON pgsched.rollups USING btree (job_id, from_at) WHERE job_id <> 0;
CREATE INDEX runs_attention ON pgsched.runs USING btree (finished_at) WHERE phase = 4;
CREATE INDEX runs_backfill ON pgsched.runs USING btree (backfill_id, phase) WHERE backfill_id IS NOT NULL;
CREATE INDEX runs_claim ON pgsched.runs USING btree (queue, priority, available_at, id) WHERE phase = 2;
CREATE INDEX runs_dead_alone ON pgsched.runs USING btree (finished_at) WHERE phase = 4 AND job_id IS NULL;
CREATE INDEX runs_ended_parents ON pgsched.runs USING btree (id) WHERE phase >= 3 AND has_children;
CREATE INDEX runs_expiring ON pgsched.runs USING btree (expires_at) WHERE phase < 3 AND expires_at IS NOT NULL;
CREATE INDEX runs_finished ON pgsched.runs USING btree (finished_at) WHERE phase >= 3;
CREATE INDEX runs_held ON pgsched.runs USING btree (held_until) WHERE phase = 0 AND held_until IS NOT NULL;
CREATE INDEX runs_of_key ON pgsched.runs USING btree (concurrency_key, phase, ready_at, id) WHERE concurrency_key IS NOT NULL AND phase < 3;
CREATE INDEX runs_open_of_job ON pgsched.runs USING btree (job_id) WHERE phase < 3 AND job_id IS NOT NULL;
CREATE INDEX runs_own_keep ON pgsched.runs USING btree (((finished_at AT TIME ZONE 'UTC'::text) + keep)) WHERE keep >= '00:00:00'::interval AND keep <= '1000 years'::interval AND finished_at < '9000-01-01 00:00:00+00'::timestamp with time zone AND phase >= 3;
CREATE INDEX runs_ready ON pgsched.runs USING btree (queue, COALESCE(concurrency_key, ''::text), priority, ready_at, id) WHERE ready_at IS NOT NULL AND phase = 0;
CREATE INDEX runs_scheduled ON pgsched.runs USING btree (available_at, id) WHERE phase = 1;
CREATE UNIQUE INDEX runs_slot ON pgsched.runs USING btree (job_id, scheduled_at) WHERE job_id IS NOT NULL;
CREATE UNIQUE INDEX runs_unique_key ON pgsched.runs USING btree (unique_key) WHERE unique_key IS NOT NULL AND phase < 3;
CREATE INDEX runs_waiting ON pgsched.runs USING btree (available_at, id) WHERE phase = 0 AND ready_at IS NULL;
CREATE INDEX runs_waiting_of_job ON pgsched.runs USING btree (job_id, scheduled_at, id) WHERE phase = 0 AND ready_at IS NULL;
CREATE INDEX sessions_of_owner ON pgsched.sessions USING btree (owner);
CREATE INDEX store_bound ON pgsched.store USING btree (root, session) WHERE session IS NOT NULL;
CREATE INDEX store_of_root ON pgsched.store USING btree (root);
CREATE INDEX store_of_session ON pgsched.store USING btree (session) WHERE session IS NOT NULL;
CREATE INDEX store_roots_of_owner ON pgsched.store_roots USING btree (owner);
CREATE INDEX tasks_of_app ON pgsched.tasks USING btree (app);
CREATE INDEX workers_alive ON pgsched.workers USING btree (id) WHERE stopped_at IS NULL;
CREATE INDEX workers_stopped ON pgsched.workers USING btree (stopped_at) WHERE stopped_at IS NOT NULL;

-- triggers

CREATE TRIGGER a_refuse_watch BEFORE INSERT OR UPDATE ON pgsched.alert_defaults FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_refuse_watch();
CREATE TRIGGER b_refuse BEFORE INSERT OR UPDATE ON pgsched.alert_defaults FOR EACH ROW EXECUTE FUNCTION pgsched.alert_defaults_refuse();
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE ON pgsched.alert_defaults FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('alert');
CREATE TRIGGER a_notify_insert AFTER INSERT ON pgsched.alerts FOR EACH ROW EXECUTE FUNCTION pgsched.alerts_notify();
CREATE TRIGGER a_notify_update AFTER UPDATE OF closed_at ON pgsched.alerts FOR EACH ROW WHEN (old.closed_at IS NULL AND new.closed_at IS NOT NULL) EXECUTE FUNCTION pgsched.alerts_notify();
CREATE TRIGGER f_audit_insert AFTER INSERT ON pgsched.alerts FOR EACH ROW EXECUTE FUNCTION pgsched.audit_alerts();
CREATE TRIGGER f_audit_update AFTER UPDATE OF closed_at, recovery ON pgsched.alerts FOR EACH ROW WHEN (new.closed_at IS DISTINCT FROM old.closed_at OR new.recovery IS DISTINCT FROM old.recovery) EXECUTE FUNCTION pgsched.audit_alerts();
CREATE TRIGGER a_check_instants AFTER INSERT OR UPDATE OF from_at, to_at, anchor_at ON pgsched.backfills FOR EACH ROW WHEN (new.from_at < '1970-01-01 00:00:00+00'::timestamp with time zone OR new.from_at > '9000-01-01 00:00:00+00'::timestamp with time zone OR new.to_at < '1970-01-01 00:00:00+00'::timestamp with time zone OR new.to_at > '9000-01-01 00:00:00+00'::timestamp with time zone OR new.anchor_at < '1900-01-01 00:00:00+00'::timestamp with time zone OR new.anchor_at > '9000-01-01 00:00:00+00'::timestamp with time zone) EXECUTE FUNCTION pgsched.backfills_refuse_instants();
CREATE TRIGGER f_audit AFTER INSERT ON pgsched.backfills FOR EACH ROW EXECUTE FUNCTION pgsched.audit_backfills();
CREATE TRIGGER a_complete BEFORE INSERT OR UPDATE ON pgsched.calendar_times FOR EACH ROW EXECUTE FUNCTION pgsched.calendar_times_before();
CREATE TRIGGER c_changed_delete AFTER DELETE ON pgsched.calendar_times REFERENCING OLD TABLE AS moved FOR EACH STATEMENT EXECUTE FUNCTION pgsched.calendar_times_changed();
CREATE TRIGGER c_changed_insert AFTER INSERT ON pgsched.calendar_times REFERENCING NEW TABLE AS moved FOR EACH STATEMENT EXECUTE FUNCTION pgsched.calendar_times_changed();
CREATE TRIGGER c_changed_update AFTER UPDATE ON pgsched.calendar_times REFERENCING NEW TABLE AS moved FOR EACH STATEMENT EXECUTE FUNCTION pgsched.calendar_times_changed();
CREATE TRIGGER d_most AFTER INSERT ON pgsched.calendar_times REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION pgsched.calendar_times_most();
CREATE TRIGGER d_most_update AFTER UPDATE ON pgsched.calendar_times REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION pgsched.calendar_times_most();
CREATE TRIGGER f_audit_delete AFTER DELETE ON pgsched.calendar_times REFERENCING OLD TABLE AS moved FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_calendar_times();
CREATE TRIGGER f_audit_insert AFTER INSERT ON pgsched.calendar_times REFERENCING NEW TABLE AS moved FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_calendar_times();
CREATE TRIGGER f_audit_update AFTER UPDATE ON pgsched.calendar_times REFERENCING NEW TABLE AS moved FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_calendar_times();
CREATE TRIGGER a_check BEFORE INSERT OR UPDATE OF name, description, owner, created_at ON pgsched.calendars FOR EACH ROW EXECUTE FUNCTION pgsched.calendars_before();
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE OF name, description, owner ON pgsched.calendars FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('calendar');
CREATE TRIGGER g_file_entries AFTER DELETE ON pgsched.calendars REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION pgsched.file_entries_of_others('calendar');
CREATE TRIGGER g_file_entries_renamed AFTER UPDATE OF name ON pgsched.calendars FOR EACH ROW WHEN (old.name <> new.name) EXECUTE FUNCTION pgsched.file_entries_renamed('calendar');
CREATE TRIGGER a_hold_back AFTER INSERT ON pgsched.dependencies REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION pgsched.dependencies_after_insert();
CREATE TRIGGER a_look_again AFTER DELETE ON pgsched.dependencies REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION pgsched.dependencies_after_delete();
CREATE TRIGGER a_no_update BEFORE UPDATE OF run_id, parent_id ON pgsched.dependencies FOR EACH STATEMENT EXECUTE FUNCTION pgsched.dependencies_no_update();
CREATE TRIGGER a_object BEFORE INSERT OR UPDATE OF owner ON pgsched.file_entries FOR EACH ROW EXECUTE FUNCTION pgsched.file_entries_object();
CREATE TRIGGER f_audit_delete AFTER DELETE ON pgsched.file_entries REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_file_entries('deleted');
CREATE TRIGGER f_audit_insert AFTER INSERT ON pgsched.file_entries REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_file_entries('created');
CREATE TRIGGER f_audit_update AFTER UPDATE ON pgsched.file_entries REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_file_entries('changed');
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE OF name, role ON pgsched.file_owners FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('file');
CREATE TRIGGER a_complete BEFORE INSERT OR UPDATE ON pgsched.job_calendars FOR EACH ROW EXECUTE FUNCTION pgsched.job_calendars_before();
CREATE TRIGGER b_most AFTER INSERT ON pgsched.job_calendars REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION pgsched.job_calendars_most();
CREATE TRIGGER b_plan_again AFTER INSERT OR DELETE OR UPDATE ON pgsched.job_calendars FOR EACH ROW EXECUTE FUNCTION pgsched.job_calendars_after();
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE ON pgsched.job_calendars FOR EACH ROW EXECUTE FUNCTION pgsched.audit_calendars();
CREATE TRIGGER a_check_insert BEFORE INSERT ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_before_insert();
CREATE TRIGGER a_check_update BEFORE UPDATE OF id, name, kind, task, args, queue, priority, tags, schedule, timezone, run_at, starts_at, ends_at, max_runs, jitter, delete_after_run, overlap, max_buffer, retry_within, misfire_after, catch_up, max_catch_up, catch_up_window, start_deadline, max_attempts, timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter, success_codes, retry_codes, dead_codes, concurrency_key, concurrency_limit, after_jobs, paused, paused_at, paused_by, paused_reason, resume_from, declared_by, description, owner, created_at, updated_at, keep, alert_after_failures, max_lateness, max_duration, expect_every, finish_by, mode, calendar, on_excluded, after_match, pause_after_failures, ping_url, alert_to ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_before_update();
CREATE TRIGGER a_refuse_keep BEFORE INSERT OR UPDATE OF keep ON pgsched.jobs FOR EACH ROW WHEN (new.keep IS NOT NULL) EXECUTE FUNCTION pgsched.refuse_keep();
CREATE TRIGGER a_refuse_watch BEFORE INSERT OR UPDATE OF alert_after_failures, max_lateness, max_duration, expect_every, finish_by ON pgsched.jobs FOR EACH ROW WHEN (new.alert_after_failures IS NOT NULL OR new.max_lateness IS NOT NULL OR new.max_duration IS NOT NULL OR new.expect_every IS NOT NULL OR new.finish_by IS NOT NULL) EXECUTE FUNCTION pgsched.jobs_refuse_watch();
CREATE TRIGGER b_high_water_mark BEFORE UPDATE OF decided_until ON pgsched.jobs FOR EACH ROW WHEN (new.decided_until < old.decided_until) EXECUTE FUNCTION pgsched.jobs_high_water_mark();
CREATE TRIGGER b_plan_again BEFORE UPDATE OF next_run_at ON pgsched.jobs FOR EACH ROW WHEN (current_setting('pgsched.ticks'::text, true) IS DISTINCT FROM 'on'::text AND new.error IS NULL AND new.next_run_at IS DISTINCT FROM old.next_run_at) EXECUTE FUNCTION pgsched.jobs_plan_again();
CREATE TRIGGER c_due_now BEFORE INSERT OR UPDATE OF paused, schedule, run_at, starts_at ON pgsched.jobs FOR EACH ROW WHEN (new.next_run_at < (clock_timestamp() - '00:00:01'::interval)) EXECUTE FUNCTION pgsched.jobs_plan_again();
CREATE TRIGGER c_notify_insert AFTER INSERT ON pgsched.jobs FOR EACH STATEMENT EXECUTE FUNCTION pgsched.jobs_notify();
CREATE TRIGGER c_notify_update AFTER UPDATE OF schedule, timezone, run_at, starts_at, ends_at, max_runs, paused, jitter, overlap, mode, calendar, on_excluded ON pgsched.jobs FOR EACH STATEMENT EXECUTE FUNCTION pgsched.jobs_notify();
CREATE TRIGGER d_after_delete AFTER DELETE ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_after_delete();
CREATE TRIGGER e_refuse_unstarted AFTER INSERT OR UPDATE OF schedule, jitter, overlap ON pgsched.jobs FOR EACH ROW WHEN (new.jitter > '00:00:00'::interval AND (new.overlap = ANY (ARRAY['replace'::text, 'terminate'::text]))) EXECUTE FUNCTION pgsched.jobs_refuse_unstarted();
CREATE TRIGGER e_rekey AFTER UPDATE OF concurrency_key, concurrency_limit ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_rekey();
CREATE TRIGGER f_audit_delete AFTER DELETE ON pgsched.jobs REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_jobs_gone();
CREATE TRIGGER f_audit_insert AFTER INSERT ON pgsched.jobs REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_jobs_added();
CREATE TRIGGER f_audit_update AFTER UPDATE OF name, kind, task, args, queue, priority, tags, schedule, timezone, run_at, starts_at, ends_at, max_runs, jitter, delete_after_run, overlap, max_buffer, retry_within, misfire_after, catch_up, max_catch_up, catch_up_window, start_deadline, max_attempts, timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter, success_codes, retry_codes, dead_codes, concurrency_key, concurrency_limit, after_jobs, paused, paused_by, paused_reason, resume_from, declared_by, description, owner, keep, alert_after_failures, max_lateness, max_duration, expect_every, finish_by, mode, calendar, on_excluded, after_match, pause_after_failures, ping_url, alert_to ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION pgsched.audit_jobs_changed();
CREATE TRIGGER g_file_entries AFTER DELETE ON pgsched.jobs REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION pgsched.file_entries_of_jobs();
CREATE TRIGGER g_file_entries_renamed AFTER UPDATE OF name ON pgsched.jobs FOR EACH ROW WHEN (old.name <> new.name) EXECUTE FUNCTION pgsched.file_entries_renamed('job');
CREATE TRIGGER z_after_jobs_insert BEFORE INSERT ON pgsched.jobs FOR EACH ROW WHEN (cardinality(new.after_jobs) > 0) EXECUTE FUNCTION pgsched.jobs_after_jobs();
CREATE TRIGGER z_after_jobs_update BEFORE UPDATE OF after_jobs ON pgsched.jobs FOR EACH ROW WHEN (cardinality(new.after_jobs) > 0) EXECUTE FUNCTION pgsched.jobs_after_jobs();
CREATE TRIGGER a_met BEFORE UPDATE OF run_id ON pgsched.kept_keys FOR EACH ROW WHEN (new.scope = 'idempotency'::text) EXECUTE FUNCTION pgsched.kept_keys_met();
CREATE TRIGGER f_audit AFTER DELETE ON pgsched.kept_keys FOR EACH ROW WHEN (old.run_id IS NOT NULL AND old.expires_at > clock_timestamp()) EXECUTE FUNCTION pgsched.audit_keys();
CREATE TRIGGER a_changed BEFORE INSERT OR DELETE OR UPDATE OF name, concurrency, rate, rate_period, rate_burst, ordered, weight ON pgsched.limits FOR EACH ROW EXECUTE FUNCTION pgsched.limits_changed();
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE OF name, concurrency, rate, rate_period, rate_burst, ordered, weight, declared_by ON pgsched.limits FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('limit');
CREATE TRIGGER g_file_entries AFTER DELETE ON pgsched.limits REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION pgsched.file_entries_of_others('limit');
CREATE TRIGGER a_notify AFTER DELETE OR UPDATE OF what, name, paused_at, paused_by, reason, resume_at ON pgsched.pauses FOR EACH ROW EXECUTE FUNCTION pgsched.pauses_notify();
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE OF what, name, paused_at, paused_by, reason, resume_at ON pgsched.pauses FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('pause');
CREATE TRIGGER g_file_entries AFTER DELETE ON pgsched.pauses REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION pgsched.file_entries_of_others('pause');
CREATE TRIGGER a_gate BEFORE INSERT OR UPDATE OF name, concurrency_limit, rate, rate_period, rate_burst, max_depth, on_full, fair, ageing ON pgsched.queues FOR EACH ROW EXECUTE FUNCTION pgsched.queues_gate();
CREATE TRIGGER a_refuse_keep BEFORE INSERT OR UPDATE OF keep ON pgsched.queues FOR EACH ROW WHEN (new.keep IS NOT NULL) EXECUTE FUNCTION pgsched.refuse_keep();
CREATE TRIGGER b_removed BEFORE DELETE ON pgsched.queues FOR EACH ROW EXECUTE FUNCTION pgsched.limits_changed();
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE OF name, concurrency_limit, rate, rate_period, rate_burst, max_depth, on_full, fair, ageing, keep ON pgsched.queues FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('queue');
CREATE TRIGGER g_file_entries AFTER DELETE ON pgsched.queues REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION pgsched.file_entries_of_others('queue');
CREATE TRIGGER a_refuse_keep BEFORE INSERT OR UPDATE OF keep ON pgsched.retention FOR EACH ROW EXECUTE FUNCTION pgsched.refuse_keep();
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE ON pgsched.retention FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('retention');
CREATE TRIGGER a_check_insert BEFORE INSERT ON pgsched.runs FOR EACH ROW WHEN (new.checked IS NOT TRUE) EXECUTE FUNCTION pgsched.runs_before_insert();
CREATE TRIGGER a_check_instants AFTER UPDATE OF job_id, scheduled_at, available_at, expires_at ON pgsched.runs FOR EACH ROW WHEN ((new.job_id IS NULL) <> (new.scheduled_at IS NULL) OR new.available_at < '1970-01-01 00:00:00+00'::timestamp with time zone OR new.available_at > '9000-01-01 00:00:00+00'::timestamp with time zone OR new.scheduled_at < '1970-01-01 00:00:00+00'::timestamp with time zone OR new.scheduled_at > '9000-01-01 00:00:00+00'::timestamp with time zone OR new.expires_at < '1970-01-01 00:00:00+00'::timestamp with time zone OR new.expires_at > '9000-01-01 00:00:00+00'::timestamp with time zone) EXECUTE FUNCTION pgsched.runs_refuse_instants();
CREATE TRIGGER a_check_size AFTER UPDATE OF unique_key, tags, options, progress, cancel_reason ON pgsched.runs FOR EACH ROW WHEN (octet_length(concat(new.unique_key, new.tags, new.options, new.progress, new.cancel_reason)) > 4000) EXECUTE FUNCTION pgsched.runs_refuse_size();
CREATE TRIGGER a_check_update AFTER UPDATE OF kind, task, args, queue, priority, max_attempts, scheduled_at, origin, owner, timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter ON pgsched.runs FOR EACH ROW EXECUTE FUNCTION pgsched.runs_after_update();
CREATE TRIGGER a_refuse_key BEFORE INSERT ON pgsched.runs FOR EACH ROW WHEN (new.idempotency_key IS NOT NULL) EXECUTE FUNCTION pgsched.refuse_untaken_key();
CREATE TRIGGER a_refuse_owner BEFORE INSERT ON pgsched.runs FOR EACH ROW WHEN (new.kind = 'sql'::text) EXECUTE FUNCTION pgsched.runs_owner();
CREATE TRIGGER b_decided BEFORE INSERT ON pgsched.runs FOR EACH ROW WHEN (new.queue IS NULL OR new.priority IS NULL OR new.max_attempts IS NULL) EXECUTE FUNCTION pgsched.runs_decided();
ALTER TABLE pgsched.runs ENABLE ALWAYS TRIGGER b_decided;
CREATE TRIGGER e_awaited AFTER UPDATE OF phase ON pgsched.runs FOR EACH ROW WHEN (new.awaited AND new.phase >= 3) EXECUTE FUNCTION pgsched.runs_awaited_ended();
CREATE TRIGGER f_audit AFTER UPDATE OF tags ON pgsched.runs FOR EACH ROW WHEN (new.tags IS DISTINCT FROM old.tags) EXECUTE FUNCTION pgsched.audit_tags();
CREATE TRIGGER z_phase BEFORE INSERT ON pgsched.runs FOR EACH ROW WHEN (new.state <> 'queued'::text OR new.phase <> 2) EXECUTE FUNCTION pgsched.runs_born_in_phase();
ALTER TABLE pgsched.runs ENABLE ALWAYS TRIGGER z_phase;
CREATE TRIGGER z_phase_after AFTER UPDATE ON pgsched.runs FOR EACH ROW WHEN (new.phase <>
        CASE new.state
            WHEN 'running'::text THEN 2
            WHEN 'succeeded'::text THEN 3
            WHEN 'queued'::text THEN 2
            WHEN 'waiting'::text THEN 0
            WHEN 'scheduled'::text THEN 1
            WHEN 'dead'::text THEN 4
            WHEN 'missed'::text THEN 4
            ELSE 3
        END) EXECUTE FUNCTION pgsched.runs_mend_phase();
ALTER TABLE pgsched.runs ENABLE ALWAYS TRIGGER z_phase_after;
CREATE TRIGGER f_audit AFTER DELETE ON pgsched.tasks FOR EACH ROW EXECUTE FUNCTION pgsched.audit_tasks();
CREATE TRIGGER f_audit AFTER UPDATE OF drain_asked_at, drain_asked_by ON pgsched.workers FOR EACH ROW WHEN (new.drain_asked_at IS DISTINCT FROM old.drain_asked_at OR new.drain_asked_by IS DISTINCT FROM old.drain_asked_by) EXECUTE FUNCTION pgsched.audit_drains();

-- grants

GRANT SELECT ON SEQUENCE pgsched.asleep_until TO PUBLIC;
GRANT SELECT ON SEQUENCE pgsched.gated_queues TO PUBLIC;
GRANT SELECT ON SEQUENCE pgsched.leader_looks_at TO PUBLIC;
GRANT SELECT ON SEQUENCE pgsched.tasks_with_options TO PUBLIC;
GRANT SELECT ON SEQUENCE pgsched.told_at TO PUBLIC;

-- comments

COMMENT ON SCHEMA pgsched IS 'pgsched: scheduler and work queue. What other programs may use: docs/reference/sql.md.';
COMMENT ON TABLE pgsched.alert_defaults IS 'What is watched where a job does not say it itself. One row: UPDATE it.';
COMMENT ON COLUMN pgsched.alert_defaults.alert_after_failures IS 'As jobs.alert_after_failures. NULL: not watched.';
COMMENT ON COLUMN pgsched.alert_defaults.max_lateness IS 'As jobs.max_lateness.';
COMMENT ON COLUMN pgsched.alert_defaults.max_duration IS 'As jobs.max_duration.';
COMMENT ON COLUMN pgsched.alert_defaults.expect_every IS 'As jobs.expect_every.';
COMMENT ON COLUMN pgsched.alert_defaults.finish_by IS 'As jobs.finish_by.';
COMMENT ON COLUMN pgsched.alert_defaults.alert_to IS 'As jobs.alert_to.';
COMMENT ON COLUMN pgsched.alert_defaults.dead_runs IS 'An alert is open while so many runs without a job ended dead within dead_runs_within.';
COMMENT ON COLUMN pgsched.alert_defaults.dead_runs_within IS 'The time for dead_runs.';
COMMENT ON TABLE pgsched.alert_deliveries IS 'pgsched''s own: who has been told of an alert.';
COMMENT ON TABLE pgsched.alerts IS 'One row for each incident: docs/how-to/alerts.md. Read only.';
COMMENT ON COLUMN pgsched.alerts.id IS 'Given by the database.';
COMMENT ON COLUMN pgsched.alerts.job IS 'The job''s name; NULL: the whole system.';
COMMENT ON COLUMN pgsched.alerts.kind IS 'failures, lateness, duration, silence, unfinished, paused, dead_runs, no_leader or test.';
COMMENT ON COLUMN pgsched.alerts.opened_at IS 'Since when.';
COMMENT ON COLUMN pgsched.alerts.closed_at IS 'Until when; NULL: it is open.';
COMMENT ON COLUMN pgsched.alerts.details IS 'What was found.';
COMMENT ON COLUMN pgsched.alerts.run_id IS 'The run that gave rise to it.';
COMMENT ON COLUMN pgsched.alerts.recovery IS 'Why it was closed.';
COMMENT ON COLUMN pgsched.alerts.alert_to IS 'Names of the sinks that get it. NULL: all.';
COMMENT ON TABLE pgsched.archived_runs IS 'Pruned runs, if retention.archive is set. Nothing in pgsched reads it: move or empty it as you like.';
COMMENT ON COLUMN pgsched.archived_runs.outside_name IS 'The name of this run outside of the database: run_id may come again.';
COMMENT ON SEQUENCE pgsched.asleep_until IS 'pgsched''s own: until when a worker may be asleep (ms since 1970); made anew by rebuild_flags().';
COMMENT ON TABLE pgsched.attempts IS 'Attempts that ended, with what went wrong. One that succeeded need not have a row. Read only.';
COMMENT ON COLUMN pgsched.attempts.run_id IS 'The run.';
COMMENT ON COLUMN pgsched.attempts.attempt IS 'Its number, from 1.';
COMMENT ON COLUMN pgsched.attempts.outcome IS 'succeeded, failed, timed_out, crashed, cancelled or interrupted.';
COMMENT ON COLUMN pgsched.attempts.started_at IS 'When it started.';
COMMENT ON COLUMN pgsched.attempts.finished_at IS 'When it ended.';
COMMENT ON COLUMN pgsched.attempts.worker IS 'The worker that ran it.';
COMMENT ON COLUMN pgsched.attempts.error IS 'The error, in one line.';
COMMENT ON COLUMN pgsched.attempts.traceback IS 'Where it came from.';
COMMENT ON COLUMN pgsched.attempts.log_tail IS 'The end of what it printed.';
COMMENT ON TABLE pgsched.audit IS 'Who changed a job, run, backfill, queue, limit, pause or retention, and when. Read only.';
COMMENT ON COLUMN pgsched.audit.at IS 'When.';
COMMENT ON COLUMN pgsched.audit.who IS 'The login.';
COMMENT ON COLUMN pgsched.audit.action IS 'What was done.';
COMMENT ON COLUMN pgsched.audit.what IS 'To what kind of thing.';
COMMENT ON COLUMN pgsched.audit.name IS 'Which one.';
COMMENT ON COLUMN pgsched.audit.change IS 'Of an edit {column: [before, after]}, else what was made, taken away or asked for.';
COMMENT ON COLUMN pgsched.audit.for_user IS 'The person for whom the session acted, as a login of pgsched_console or of the owner of this table said; null: nobody was named.';
COMMENT ON TABLE pgsched.backfills IS 'pgsched''s own: made by pgsched.backfill, and worked on by the leader.';
COMMENT ON COLUMN pgsched.backfills.together IS 'The first of the backfills that were requested together. NULL: it was requested alone.';
COMMENT ON COLUMN pgsched.backfills.after_backfill IS 'It begins when this backfill has ended.';
COMMENT ON TABLE pgsched.buckets IS 'pgsched''s own: what rate limits have left.';
COMMENT ON TABLE pgsched.calendar_times IS 'What a calendar excludes. INSERT and UPDATE rows; pgsched.remove_calendar_times deletes some.';
COMMENT ON COLUMN pgsched.calendar_times.id IS 'Its number: `pgsched calendar remove --id`.';
COMMENT ON COLUMN pgsched.calendar_times.calendar IS 'The calendar.';
COMMENT ON COLUMN pgsched.calendar_times.from_date IS 'The first day. NULL, as until_date: every day.';
COMMENT ON COLUMN pgsched.calendar_times.until_date IS 'The last day.';
COMMENT ON COLUMN pgsched.calendar_times.weekdays IS 'Only on these weekdays, 0 (Sunday) to 6. NULL: on all.';
COMMENT ON COLUMN pgsched.calendar_times.from_time IS 'Only from this time of the day on. NULL, as until_time: the whole day.';
COMMENT ON COLUMN pgsched.calendar_times.until_time IS 'Until this time, which is not excluded.';
COMMENT ON COLUMN pgsched.calendar_times.reason IS 'Why, for people.';
COMMENT ON TABLE pgsched.calendars IS 'Calendars that jobs share: times at which they do not run. INSERT and UPDATE rows; pgsched.delete_calendar deletes one.';
COMMENT ON COLUMN pgsched.calendars.name IS 'Unique. jobs.calendar names it.';
COMMENT ON COLUMN pgsched.calendars.description IS 'For people.';
COMMENT ON COLUMN pgsched.calendars.owner IS 'The role that made it.';
COMMENT ON COLUMN pgsched.calendars.created_at IS 'When it was made.';
COMMENT ON COLUMN pgsched.calendars.version IS 'Kept by pgsched: another one with each change of its times.';
COMMENT ON COLUMN pgsched.calendars.replan IS 'Kept by pgsched: its times have changed, and the leader has not planned its jobs again yet.';
COMMENT ON COLUMN pgsched.calendars.id IS 'One that is deleted and made again has another.';
COMMENT ON TABLE pgsched.dependencies IS 'run_id waits for parent_id. INSERT rows before the run has started; DELETE takes one back.';
COMMENT ON COLUMN pgsched.dependencies.run_id IS 'The run that waits.';
COMMENT ON COLUMN pgsched.dependencies.parent_id IS 'The run that it waits for.';
COMMENT ON COLUMN pgsched.dependencies.on_failure IS 'What happens if the parent does not succeed: cancel, run_anyway, wait.';
COMMENT ON COLUMN pgsched.dependencies.any_of IS 'Of all edges of a run that say so, one has to be met; every other has to be.';
COMMENT ON SEQUENCE pgsched.fences IS 'The number of each grant of a lock. Never reset.';
COMMENT ON TABLE pgsched.file_entries IS 'What files of jobs declare (pgsched apply). No other file changes it.';
COMMENT ON COLUMN pgsched.file_entries.owner IS 'The owner of the file.';
COMMENT ON COLUMN pgsched.file_entries.what IS 'job, queue, limit, pause, calendar, retention or alerts. done: a job that ran once and deleted itself.';
COMMENT ON COLUMN pgsched.file_entries.name IS 'Its name. Of a pause what and name, of retention "everything".';
COMMENT ON COLUMN pgsched.file_entries.declared_at IS 'When the file began to declare it.';
COMMENT ON COLUMN pgsched.file_entries.object_id IS 'The id of the job or calendar: one of the same name that is made later is not the file''s.';
COMMENT ON COLUMN pgsched.file_entries.decides IS 'Which of the columns mode and paused of a job the file names.';
COMMENT ON COLUMN pgsched.file_entries.run_at IS 'The run_at that the file names. After the job has deleted itself, another one makes it again.';
COMMENT ON TABLE pgsched.file_owners IS 'Owners of files of jobs (pgsched apply --owner).';
COMMENT ON COLUMN pgsched.file_owners.name IS 'What --owner says.';
COMMENT ON COLUMN pgsched.file_owners.role IS 'The role that used the name first. Who may not act for it may not use the name.';
COMMENT ON COLUMN pgsched.file_owners.applied_at IS 'When an apply changed something last.';
COMMENT ON SEQUENCE pgsched.gated_queues IS 'pgsched''s own: a bit for each queue that has settings; made anew by rebuild_flags().';
COMMENT ON TABLE pgsched.identity IS 'Which database this is, and of which fleet. One row.';
COMMENT ON COLUMN pgsched.identity.database IS 'In the names of what leaves the database (outside_name).';
COMMENT ON COLUMN pgsched.identity.fleet IS 'Processes of another fleet refuse this database, as it refuses them.';
COMMENT ON TABLE pgsched.item_consumers IS 'Sessions that get items of a queue.';
COMMENT ON COLUMN pgsched.item_consumers.waiting_since IS 'Since when it waits for an item. NULL: it does not.';
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
COMMENT ON TABLE pgsched.job_calendars IS 'Dates on which a job does not run, in the job''s time zone. INSERT, UPDATE and DELETE rows.';
COMMENT ON COLUMN pgsched.job_calendars.job_id IS 'The job.';
COMMENT ON COLUMN pgsched.job_calendars.from_date IS 'The first excluded date.';
COMMENT ON COLUMN pgsched.job_calendars.until_date IS 'The last excluded date; default: from_date.';
COMMENT ON COLUMN pgsched.job_calendars.reason IS 'Why: the reason of the slots that are skipped.';
COMMENT ON TABLE pgsched.jobs IS 'What runs, and when. INSERT, UPDATE and DELETE rows; docs/reference/jobs.md has every column.';
COMMENT ON COLUMN pgsched.jobs.id IS 'Given by the database.';
COMMENT ON COLUMN pgsched.jobs.name IS 'Unique; 1 to 200 characters.';
COMMENT ON COLUMN pgsched.jobs.description IS 'For people.';
COMMENT ON COLUMN pgsched.jobs.kind IS 'How task is read: the name of a registered task, a program (command), a command line (shell), statements (sql) or a URL (http).';
COMMENT ON COLUMN pgsched.jobs.task IS 'The name, program, command line, statements or URL.';
COMMENT ON COLUMN pgsched.jobs.args IS 'Arguments: a JSON object or array, at most 1 MiB.';
COMMENT ON COLUMN pgsched.jobs.queue IS 'The queue that its runs stand in; NULL: what its task says (pgsched.tasks), or "default".';
COMMENT ON COLUMN pgsched.jobs.priority IS '0 to 9; lower goes first within a queue. NULL: what its task says, or 5.';
COMMENT ON COLUMN pgsched.jobs.tags IS 'Labels, at most 100.';
COMMENT ON COLUMN pgsched.jobs.schedule IS 'Cron with five or six fields, @daily and its kin, @every 90s, @after 10m. NULL: the job runs once.';
COMMENT ON COLUMN pgsched.jobs.timezone IS 'The IANA zone in which a cron schedule is read.';
COMMENT ON COLUMN pgsched.jobs.run_at IS 'When to run a job without a schedule; default: now.';
COMMENT ON COLUMN pgsched.jobs.starts_at IS 'No slot before this instant; @every counts from it.';
COMMENT ON COLUMN pgsched.jobs.ends_at IS 'No slot after this instant.';
COMMENT ON COLUMN pgsched.jobs.max_runs IS 'No slot after this many runs.';
COMMENT ON COLUMN pgsched.jobs.jitter IS 'Each start is moved by an amount below this; the slot itself stays.';
COMMENT ON COLUMN pgsched.jobs.delete_after_run IS 'A job that runs once is deleted when its run has succeeded.';
COMMENT ON COLUMN pgsched.jobs.overlap IS 'What a slot does while an earlier run is not finished: allow, skip, buffer_one, buffer_all, replace, terminate.';
COMMENT ON COLUMN pgsched.jobs.max_buffer IS 'How many slots may wait under overlap buffer_all.';
COMMENT ON COLUMN pgsched.jobs.retry_within IS 'Under overlap skip: the slot still starts if the earlier run ends within this time.';
COMMENT ON COLUMN pgsched.jobs.misfire_after IS 'A slot decided up to this late is on time; always up to a second late.';
COMMENT ON COLUMN pgsched.jobs.catch_up IS 'Which of the late slots run: latest, skip (none), earliest, all.';
COMMENT ON COLUMN pgsched.jobs.max_catch_up IS 'At most so many under catch_up all.';
COMMENT ON COLUMN pgsched.jobs.catch_up_window IS 'Slots later than this are recorded as missed.';
COMMENT ON COLUMN pgsched.jobs.start_deadline IS 'A slot not started this long after its time is recorded as missed.';
COMMENT ON COLUMN pgsched.jobs.max_attempts IS '1 to 1000; then the run is dead. NULL: what its task says, or 3.';
COMMENT ON COLUMN pgsched.jobs.timeout IS 'An attempt is stopped after this long.';
COMMENT ON COLUMN pgsched.jobs.kill_after IS 'How long after the request to stop an attempt is killed. NULL: what its task says, or 10 seconds.';
COMMENT ON COLUMN pgsched.jobs.backoff IS 'How the wait between attempts grows. NULL: what its task says, or exponential.';
COMMENT ON COLUMN pgsched.jobs.backoff_base IS 'The first wait. NULL: what its task says, or 5 seconds.';
COMMENT ON COLUMN pgsched.jobs.backoff_max IS 'The longest wait. NULL: what its task says, or 1 hour.';
COMMENT ON COLUMN pgsched.jobs.backoff_jitter IS 'By which part of it a wait may be shorter, 0 to 1. NULL: what its task says, or 0.2.';
COMMENT ON COLUMN pgsched.jobs.success_codes IS 'Exit codes of command and shell that are a success.';
COMMENT ON COLUMN pgsched.jobs.retry_codes IS 'If set: only these other exit codes are retried.';
COMMENT ON COLUMN pgsched.jobs.dead_codes IS 'Exit codes after which the run is dead at once.';
COMMENT ON COLUMN pgsched.jobs.concurrency_key IS 'The key of its runs, with {name} for an argument: limits of keys bind it.';
COMMENT ON COLUMN pgsched.jobs.concurrency_limit IS 'So many of its runs at once; with a concurrency_key, of each key.';
COMMENT ON COLUMN pgsched.jobs.after_jobs IS 'Ids of jobs: a slot starts when their runs for the same slot have succeeded.';
COMMENT ON COLUMN pgsched.jobs.paused IS 'While true no slot is decided.';
COMMENT ON COLUMN pgsched.jobs.paused_at IS 'Since when; fills itself in.';
COMMENT ON COLUMN pgsched.jobs.paused_by IS 'By whom; fills itself in.';
COMMENT ON COLUMN pgsched.jobs.paused_reason IS 'Why.';
COMMENT ON COLUMN pgsched.jobs.resume_from IS 'Set with paused = false: now skips the slots passed over, pause lets catch_up decide them.';
COMMENT ON COLUMN pgsched.jobs.declared_by IS 'The app whose code declares the job.';
COMMENT ON COLUMN pgsched.jobs.owner IS 'The role that it belongs to, and with whose rights SQL runs.';
COMMENT ON COLUMN pgsched.jobs.created_at IS 'Kept by pgsched.';
COMMENT ON COLUMN pgsched.jobs.updated_at IS 'Kept by pgsched: the last edit.';
COMMENT ON COLUMN pgsched.jobs.anchor_at IS 'Kept by pgsched: what @every counts from.';
COMMENT ON COLUMN pgsched.jobs.decided_until IS 'Kept by pgsched: the newest slot decided; only rises.';
COMMENT ON COLUMN pgsched.jobs.next_run_at IS 'Kept by pgsched: when its next run is due. Set by hand, it is planned again.';
COMMENT ON COLUMN pgsched.jobs.run_count IS 'Kept by pgsched: how many of its slots became runs.';
COMMENT ON COLUMN pgsched.jobs.error IS 'Kept by pgsched: why the job cannot be planned; nothing more is until it is edited.';
COMMENT ON COLUMN pgsched.jobs.error_at IS 'Kept by pgsched: since when.';
COMMENT ON COLUMN pgsched.jobs.keep IS 'How long ended runs stay, by outcome: {"succeeded": "1 day", "any": "7 days"}.';
COMMENT ON COLUMN pgsched.jobs.alert_after_failures IS 'An alert is open while so many of its runs in a row ended dead.';
COMMENT ON COLUMN pgsched.jobs.max_lateness IS 'An alert is open while a slot started, or waits to start, later than this.';
COMMENT ON COLUMN pgsched.jobs.max_duration IS 'An alert is open while an attempt takes, or took, longer than this.';
COMMENT ON COLUMN pgsched.jobs.expect_every IS 'An alert is open while it has not succeeded for this long.';
COMMENT ON COLUMN pgsched.jobs.mode IS 'run; or shadow: its slots are decided and recorded as skipped, and nothing runs.';
COMMENT ON COLUMN pgsched.jobs.calendar IS 'The calendar whose times are excluded, beside the job''s own dates.';
COMMENT ON COLUMN pgsched.jobs.on_excluded IS 'What becomes of a slot at an excluded time: skip, next_business_day or previous.';
COMMENT ON COLUMN pgsched.jobs.after_match IS 'Which runs of after_jobs a slot waits for: same (slot), latest or since_last.';
COMMENT ON COLUMN pgsched.jobs.pause_after_failures IS 'The job pauses itself when so many of its runs in a row ended dead.';
COMMENT ON COLUMN pgsched.jobs.finish_by IS 'An alert is open while a slot has not succeeded by this long after its time.';
COMMENT ON COLUMN pgsched.jobs.ping_url IS 'A URL to which each start, success and failure is sent.';
COMMENT ON COLUMN pgsched.jobs.alert_to IS 'Names of sinks (pgsched worker --alert-apprise) that get its alerts. NULL: all of them.';
COMMENT ON COLUMN pgsched.jobs.resumed_at IS 'When it was last resumed. Kept by pgsched.';
COMMENT ON COLUMN pgsched.jobs.shifts IS 'Kept by pgsched: which nominal slots are decided, where a calendar shifts slots.';
COMMENT ON TABLE pgsched.kept_keys IS 'pgsched''s own: keys that outlive the run they stand for.';
COMMENT ON TABLE pgsched.leader IS 'pgsched''s own: one row a term; the newest leads.';
COMMENT ON COLUMN pgsched.leader.by_lock IS 'Did the session also hold the advisory lock by which candidates wait?';
COMMENT ON COLUMN pgsched.leader.backend IS 'The session of the server that leads; null: a pooler lends it others.';
COMMENT ON SEQUENCE pgsched.leader_looks_at IS 'Until when the leader looks at nothing by itself that becomes due before, in milliseconds since 1970.';
COMMENT ON TABLE pgsched.limits IS 'Limits of concurrency keys: of the key with this name, and of each key that begins with it and a colon.';
COMMENT ON COLUMN pgsched.limits.name IS 'The key, or what its keys have before their first colon.';
COMMENT ON COLUMN pgsched.limits.concurrency IS 'So many runs of a key at once.';
COMMENT ON COLUMN pgsched.limits.rate IS 'So many starts of a key in each rate_period.';
COMMENT ON COLUMN pgsched.limits.rate_period IS '1 millisecond to 31 days.';
COMMENT ON COLUMN pgsched.limits.rate_burst IS 'So many at once after a quiet time.';
COMMENT ON COLUMN pgsched.limits.ordered IS 'Runs of a key start in the order in which they came.';
COMMENT ON COLUMN pgsched.limits.weight IS 'The share of a key in a fair queue.';
COMMENT ON COLUMN pgsched.limits.declared_by IS 'The app that declares this limit with a task, and keeps it up to date. NULL: a person set it.';
COMMENT ON TABLE pgsched.lock_losses IS 'Grants that somebody took from a session: then it reads which it still has.';
COMMENT ON TABLE pgsched.lock_places IS 'Who holds a lock, and who waits for it, in their order.';
COMMENT ON COLUMN pgsched.lock_places.token IS 'Chosen by the process: to ask again with it gives the same answer.';
COMMENT ON COLUMN pgsched.lock_places.fence IS 'The number of this grant, for assert_lock. NULL: it waits.';
COMMENT ON COLUMN pgsched.lock_places.note IS 'What the process says of itself to whoever reads the line.';
COMMENT ON COLUMN pgsched.lock_places.give_up_at IS 'When it leaves the line if it still waits. NULL: when its session ends.';
COMMENT ON COLUMN pgsched.lock_places.left_at IS 'It is held no more. It stays until the transaction ends that asserts it.';
COMMENT ON COLUMN pgsched.lock_places.number IS 'It rises with each place in any line: see pgsched.role_room.';
COMMENT ON SEQUENCE pgsched.lock_places_number_seq IS 'Of the column number in pgsched.lock_places.';
COMMENT ON TABLE pgsched.locks IS 'Names that were used as a lock, an election or a semaphore.';
COMMENT ON COLUMN pgsched.locks.owner IS 'The role that used the name first.';
COMMENT ON COLUMN pgsched.locks.kind IS 'What those who use it call it. An election is a lock whose holder is called the leader.';
COMMENT ON COLUMN pgsched.locks.capacity IS 'How many may hold a semaphore at the same time. NULL: it is a lock.';
COMMENT ON COLUMN pgsched.locks.last_place IS 'The last place given in its line.';
COMMENT ON COLUMN pgsched.locks.used_at IS 'When it was last asked for, given or given back. A name unused for 30 days is deleted.';
COMMENT ON COLUMN pgsched.locks.number IS 'It rises with each name that anybody adds: see pgsched.role_room.';
COMMENT ON SEQUENCE pgsched.locks_number_seq IS 'Of the column number in pgsched.locks.';
COMMENT ON TABLE pgsched.name_grants IS 'Who may use names with this prefix. Other names belong to the role that used them first.';
COMMENT ON TABLE pgsched.next_slots IS 'The next slots of each job with a schedule, as the leader computed them: pgsched.preview.';
COMMENT ON COLUMN pgsched.next_slots.after_at IS 'They are all slots of the schedule after this instant, up to the last of them.';
COMMENT ON COLUMN pgsched.next_slots.offsets IS 'What the job''s zone is ahead of UTC at each slot, in seconds.';
COMMENT ON COLUMN pgsched.next_slots.rules IS 'The release of the time zone rules by which they were computed.';
COMMENT ON COLUMN pgsched.next_slots.refresh_at IS 'When the leader computes further ones; NULL: the schedule has none.';
COMMENT ON COLUMN pgsched.next_slots.nominals IS 'Where the schedule has each of the slots, if a calendar has shifted it.';
COMMENT ON COLUMN pgsched.next_slots.excluded IS 'By which excluded times the slots were shifted: pgsched.excluded_mark.';
COMMENT ON TABLE pgsched.passed_over IS 'pgsched''s own: slots that an edit passed over, until the leader records them.';
COMMENT ON TABLE pgsched.pauses IS 'What must not start: everything, a queue or a task. INSERT pauses, DELETE resumes.';
COMMENT ON COLUMN pgsched.pauses.what IS 'all, queue or task (limit is the database''s own).';
COMMENT ON COLUMN pgsched.pauses.name IS 'The queue or task; empty for all.';
COMMENT ON COLUMN pgsched.pauses.paused_at IS 'Since when.';
COMMENT ON COLUMN pgsched.pauses.paused_by IS 'By whom.';
COMMENT ON COLUMN pgsched.pauses.reason IS 'Why.';
COMMENT ON COLUMN pgsched.pauses.resume_at IS 'When the pause ends by itself.';
COMMENT ON COLUMN pgsched.pauses.waits_for IS 'Of a queue that is shut while its first limit is applied (what = limit, since paused_at): the process id of the session whose open transaction it waits for.';
COMMENT ON TABLE pgsched.queues IS 'Settings of queues: limits, depth, fairness, retention. A queue without settings needs no row.';
COMMENT ON COLUMN pgsched.queues.name IS 'The queue.';
COMMENT ON COLUMN pgsched.queues.concurrency_limit IS 'So many of its runs at once.';
COMMENT ON COLUMN pgsched.queues.rate IS 'So many starts in each rate_period.';
COMMENT ON COLUMN pgsched.queues.rate_period IS '1 millisecond to 31 days.';
COMMENT ON COLUMN pgsched.queues.rate_burst IS 'So many at once after a quiet time.';
COMMENT ON COLUMN pgsched.queues.max_depth IS 'So many runs may wait in it.';
COMMENT ON COLUMN pgsched.queues.on_full IS 'What a run beyond max_depth does: reject it, or shed_oldest.';
COMMENT ON COLUMN pgsched.queues.fair IS 'Concurrency keys take turns, by the weights of their limits.';
COMMENT ON COLUMN pgsched.queues.ageing IS 'A run that waits gains one priority after each such time.';
COMMENT ON COLUMN pgsched.queues.keep IS 'How long ended runs stay, as in jobs.keep.';
COMMENT ON TABLE pgsched.refunds IS 'pgsched''s own: starts that a rate limit gets back.';
COMMENT ON TABLE pgsched.retention IS 'How long things are kept where neither job nor queue says so. One row: UPDATE it.';
COMMENT ON COLUMN pgsched.retention.keep IS 'Ended runs, by outcome, as in jobs.keep.';
COMMENT ON COLUMN pgsched.retention.archive IS 'Runs that go are put into archived_runs.';
COMMENT ON COLUMN pgsched.retention.keep_minutes IS 'Figures by the minute.';
COMMENT ON COLUMN pgsched.retention.keep_hours IS 'Figures by the hour.';
COMMENT ON COLUMN pgsched.retention.keep_audit IS 'Who changed what.';
COMMENT ON TABLE pgsched.role_room IS 'Until when a role may add rows of a table before they are counted again, for its limit.';
COMMENT ON COLUMN pgsched.role_room.what IS 'The table.';
COMMENT ON COLUMN pgsched.role_room.counted_at IS 'The number of the row for which they were counted.';
COMMENT ON COLUMN pgsched.role_room.room_until IS 'No row up to this number is one too many for the role.';
COMMENT ON TABLE pgsched.rollup_mark IS 'pgsched''s own: up to when ended runs are counted.';
COMMENT ON TABLE pgsched.rollups IS 'How many runs ended and how long they took, by minute and hour: docs/how-to/retention.md. Read only.';
COMMENT ON TABLE pgsched.run_logs IS 'What runs printed: order by run_id, attempt, seq. Read only.';
COMMENT ON COLUMN pgsched.run_logs.run_id IS 'The run.';
COMMENT ON COLUMN pgsched.run_logs.attempt IS 'The attempt.';
COMMENT ON COLUMN pgsched.run_logs.seq IS 'The place of the chunk.';
COMMENT ON COLUMN pgsched.run_logs.at IS 'When it was written.';
COMMENT ON COLUMN pgsched.run_logs.stream IS 'stdout, stderr, log, or cut: how much is left out at this place.';
COMMENT ON COLUMN pgsched.run_logs.chunk IS 'The text.';
COMMENT ON TABLE pgsched.runs IS 'One row for each run. Made by pgsched.enqueue, by INSERT or for a slot of a job; do not UPDATE or DELETE.';
COMMENT ON COLUMN pgsched.runs.id IS 'Given by the database.';
COMMENT ON COLUMN pgsched.runs.job_id IS 'The job that it is of; NULL: it was enqueued.';
COMMENT ON COLUMN pgsched.runs.scheduled_at IS 'The slot of the job.';
COMMENT ON COLUMN pgsched.runs.available_at IS 'It does not start before this instant.';
COMMENT ON COLUMN pgsched.runs.created_at IS 'When it was made.';
COMMENT ON COLUMN pgsched.runs.started_at IS 'When its last attempt started.';
COMMENT ON COLUMN pgsched.runs.finished_at IS 'When it ended; NULL: it has not.';
COMMENT ON COLUMN pgsched.runs.attempt IS 'How many attempts have started.';
COMMENT ON COLUMN pgsched.runs.max_attempts IS 'After so many it is dead. Not given: its task''s, or 3.';
COMMENT ON COLUMN pgsched.runs.priority IS '0 to 9; lower goes first within a queue. Not given: its task''s, or 5.';
COMMENT ON COLUMN pgsched.runs.crashes IS 'How many attempts in a row took their worker or their process down.';
COMMENT ON COLUMN pgsched.runs.state IS 'waiting, scheduled, queued, running; ended: succeeded, dead, cancelled, skipped, missed.';
COMMENT ON COLUMN pgsched.runs.queue IS 'The queue that it stands in. Not given: its task''s (pgsched.tasks), or "default".';
COMMENT ON COLUMN pgsched.runs.kind IS 'How task is read: see jobs.kind.';
COMMENT ON COLUMN pgsched.runs.task IS 'The name, program, command line, statements or URL.';
COMMENT ON COLUMN pgsched.runs.args IS 'Arguments: a JSON object or array.';
COMMENT ON COLUMN pgsched.runs.origin IS 'schedule, manual (triggered), backfill or enqueue.';
COMMENT ON COLUMN pgsched.runs.unique_key IS 'No other unfinished run has this key.';
COMMENT ON COLUMN pgsched.runs.idempotency_key IS 'The key of the request that made it.';
COMMENT ON COLUMN pgsched.runs.concurrency_key IS 'What it shares limits with.';
COMMENT ON COLUMN pgsched.runs.tags IS 'Labels.';
COMMENT ON COLUMN pgsched.runs.cancel_requested_at IS 'When somebody asked its worker to stop it.';
COMMENT ON COLUMN pgsched.runs.cancel_reason IS 'Who asked, and why.';
COMMENT ON COLUMN pgsched.runs.reason IS 'Why it is in this state.';
COMMENT ON COLUMN pgsched.runs.error IS 'The error of its last attempt that failed.';
COMMENT ON COLUMN pgsched.runs.result IS 'What the task returned, as JSON.';
COMMENT ON COLUMN pgsched.runs.progress IS 'What the task said of its progress.';
COMMENT ON COLUMN pgsched.runs.covers_from IS 'The row stands for a stretch of slots: the first.';
COMMENT ON COLUMN pgsched.runs.covers_until IS 'The last slot of the stretch.';
COMMENT ON COLUMN pgsched.runs.covers_count IS 'How many slots the stretch has.';
COMMENT ON COLUMN pgsched.runs.covers_state IS 'What became of the others, where that is not the state of this row.';
COMMENT ON COLUMN pgsched.runs.covers_reason IS 'Why.';
COMMENT ON COLUMN pgsched.runs.begun IS 'The worker''s last heartbeat said that the attempt was being made. Null where no heartbeat has said so.';
COMMENT ON COLUMN pgsched.runs.suspect IS 'A worker died that held this run, and no attempt has ended by itself since: it is claimed alone. Null: not so.';
COMMENT ON COLUMN pgsched.runs.reruns IS 'How often somebody asked for it again once it had ended; NULL: never.';
COMMENT ON COLUMN pgsched.runs.keep IS 'How long it is kept once it has ended. NULL: what its job, its queue or the settings say.';
COMMENT ON COLUMN pgsched.runs.interval_start IS 'The slot before this one: where the interval of this slot begins. NULL: not a slot.';
COMMENT ON COLUMN pgsched.runs.nominal_at IS 'Where the schedule has the slot, if a calendar has shifted it.';
COMMENT ON COLUMN pgsched.runs.slot_zone IS 'The time zone of its job when the run was made. NULL: UTC, or not a slot.';
COMMENT ON TABLE pgsched.sessions IS 'Processes that hold locks and other leases; a process renews its session.';
COMMENT ON COLUMN pgsched.sessions.token IS 'Chosen by the process: who knows it, and may act for its owner, uses the session.';
COMMENT ON COLUMN pgsched.sessions.lease_until IS 'When it ends unless it is renewed before.';
COMMENT ON COLUMN pgsched.sessions.ended_at IS 'It was ended, or found not renewed. It never lives again.';
COMMENT ON TABLE pgsched.set_aside IS 'Rows that a duty of the leader fails with, and duties that fail: each with its error and when it is tried again.';
COMMENT ON TABLE pgsched.store IS 'Small values that programs share.';
COMMENT ON COLUMN pgsched.store.version IS 'The version of its root when the value was last changed.';
COMMENT ON COLUMN pgsched.store.revision IS 'How often the key was written, from 1.';
COMMENT ON COLUMN pgsched.store.session IS 'The key goes with this session. NULL: it stays.';
COMMENT ON TABLE pgsched.store_changes IS 'The last changes under each root, for those who watch it.';
COMMENT ON COLUMN pgsched.store_changes.value IS 'The value that was written. NULL: the key was deleted.';
COMMENT ON TABLE pgsched.store_nodes IS 'Keys of the store that were made as nodes of a tree.';
COMMENT ON COLUMN pgsched.store_nodes.made_at IS 'The version of its root when the node was made.';
COMMENT ON COLUMN pgsched.store_nodes.children IS 'How many children were made below it: the number of the next one in a sequence.';
COMMENT ON TABLE pgsched.store_roots IS 'First elements of the keys in pgsched.store; changes under one of them follow one another.';
COMMENT ON COLUMN pgsched.store_roots.owner IS 'The role that used the root first.';
COMMENT ON COLUMN pgsched.store_roots.version IS 'The version of the last change under this root.';
COMMENT ON COLUMN pgsched.store_roots.kept_after IS 'Changes up to this version are not kept any more.';
COMMENT ON COLUMN pgsched.store_roots.keys IS 'How many keys there are under this root.';
COMMENT ON COLUMN pgsched.store_roots.look_at IS 'Before this time no session ends, unless it is ended, to which keys under this root are bound.';
COMMENT ON COLUMN pgsched.store_roots.watched_until IS 'Changes are notified until this time: somebody watches the root.';
COMMENT ON COLUMN pgsched.store_roots.changed_at IS 'When a key was last changed. A root without keys is deleted after 30 days.';
COMMENT ON COLUMN pgsched.store_roots.number IS 'It rises with each root that anybody adds: see pgsched.role_room.';
COMMENT ON SEQUENCE pgsched.store_roots_number_seq IS 'Of the column number in pgsched.store_roots.';
COMMENT ON SEQUENCE pgsched.store_versions IS 'The highest version that a deleted root had. Never reset.';
COMMENT ON TABLE pgsched.tasks IS 'What the code of each app says of its tasks. Of several releases of one task the one that was first seen last holds.';
COMMENT ON COLUMN pgsched.tasks.task IS 'Its name, as runs and jobs have it.';
COMMENT ON COLUMN pgsched.tasks.app IS 'The app whose worker registered it.';
COMMENT ON COLUMN pgsched.tasks.release IS 'What tells these options and this schema from others of the same task.';
COMMENT ON COLUMN pgsched.tasks.options IS 'What its runs take unless the call or the job says otherwise, by the names of the options; durations in seconds.';
COMMENT ON COLUMN pgsched.tasks.schema IS 'The arguments that it takes, as JSON Schema.';
COMMENT ON COLUMN pgsched.tasks.owner IS 'The role that registered it. Another role''s worker cannot register tasks of the same app.';
COMMENT ON COLUMN pgsched.tasks.first_seen_at IS 'When a worker registered this release for the first time.';
COMMENT ON SEQUENCE pgsched.tasks_with_options IS 'pgsched''s own: a bit for each task that has options; see rebuild_flags().';
COMMENT ON SEQUENCE pgsched.told_at IS 'pgsched''s own: when workers were last notified (ms since 1970); believed for 20 ms.';
COMMENT ON TABLE pgsched.turns IS 'Rows to lock: what is to be done by one at a time.';
COMMENT ON TABLE pgsched.workers IS 'pgsched''s own: the workers there are and were lately.';
COMMENT ON COLUMN pgsched.workers.lost_runs IS 'What it held when it was lost: runs by task.';
COMMENT ON COLUMN pgsched.workers.releases IS 'The release of each of its tasks, in their order (pgsched.tasks).';
COMMENT ON FUNCTION pgsched.assert_claim(bigint,uuid) IS 'Fails with 55000 if the attempt no longer owns its run; else holds ownership until the transaction ends.';
COMMENT ON FUNCTION pgsched.assert_fleet(uuid) IS 'Fails with PS409 unless this database is of that fleet.';
COMMENT ON FUNCTION pgsched.backfill(text,timestamp with time zone,timestamp with time zone,text,integer,boolean,integer) IS 'Runs the slots of a job in [from_at, to_at) once more. Returns the backfill''s id: docs/reference/jobs.md.';
COMMENT ON FUNCTION pgsched.backfill_in_order(text[],timestamp with time zone,timestamp with time zone,text,integer,boolean,integer) IS 'Backfills of several jobs as one thing, one after the other. Returns their ids.';
COMMENT ON FUNCTION pgsched.cancel(bigint,text) IS 'Cancels a run. Returns cancelled, requested (its worker was asked), the state in which it had ended, or NULL: no such run.';
COMMENT ON FUNCTION pgsched.cancel_backfill(bigint,text) IS 'Ends a backfill. Returns cancelled, finished (it was over), or NULL: no such backfill.';
COMMENT ON FUNCTION pgsched.check_args(text,jsonb) IS 'Whether these arguments fit the task: fits is null where that cannot be said; problem gives the reason.';
COMMENT ON FUNCTION pgsched.declare_limits(text,boolean) IS 'Makes the limits of an app''s tasks what the newest release of each declares.';
COMMENT ON FUNCTION pgsched.delete_calendar(text) IS 'Deletes a calendar that no job uses; returns its name, or NULL: there is none.';
COMMENT ON FUNCTION pgsched.delete_job(text) IS 'Deletes a job: its unstarted runs are cancelled, running ones go on. Returns its id and how many run; NULL if there is none.';
COMMENT ON FUNCTION pgsched.enqueue(text,jsonb,text,text,integer,interval,timestamp with time zone,text,integer,interval,text,text,text,interval,text[],bigint[],bigint[],text,text,text[],interval,interval,text,interval,interval,double precision,interval,timestamp with time zone,interval) IS 'Makes a run; returns its id, or that of the run which has the key already. Call it with named arguments: docs/how-to/enqueue.md.';
COMMENT ON FUNCTION pgsched.enqueue_result(text,jsonb,text,text,integer,interval,timestamp with time zone,text,integer,interval,text,text,text,interval,text[],bigint[],bigint[],text,text,text[],interval,interval,text,interval,interval,double precision,interval,timestamp with time zone,interval) IS 'As enqueue; returns id and how: created, existing, replaced, repeated, rejected.';
COMMENT ON FUNCTION pgsched.explain(text,timestamp with time zone) IS 'What became of the slot of a job at an instant, and why; without one: of its latest slot.';
COMMENT ON FUNCTION pgsched.first_result(text) IS 'The run that the first enqueue with this idempotency key made, and what became of it; no row: unknown or expired.';
COMMENT ON FUNCTION pgsched.include_dates(text,date,date) IS 'Allows dates of a job again that were excluded; returns the stretches that were cut or removed, as they were.';
COMMENT ON FUNCTION pgsched.item_consume(bigint,uuid,uuid) IS 'The holder of an item is done with it: it is deleted. False: it is not held any more.';
COMMENT ON FUNCTION pgsched.item_extend(bigint,uuid) IS 'Renews the session of the holder of an item. NULL: it is not held any more.';
COMMENT ON FUNCTION pgsched.item_get(text,uuid,uuid,interval,integer,integer,boolean) IS 'Gets items of a queue and holds them until they are consumed, or the session ends. The token is the caller''s choice.';
COMMENT ON FUNCTION pgsched.item_give_back(bigint,uuid,interval,text) IS 'The holder of an item puts it back into the line. False: it is not held any more.';
COMMENT ON FUNCTION pgsched.item_put(text,jsonb,integer,interval) IS 'Puts an item into a queue; returns its id.';
COMMENT ON FUNCTION pgsched.job_status(text,integer) IS 'One row for each job: its next slot, its newest run, how many runs are open, how many in a row failed.';
COMMENT ON FUNCTION pgsched.jobs_in_order(text,boolean,boolean) IS 'The names of the jobs before and behind a job (after_jobs), each one behind those that it waits for.';
COMMENT ON FUNCTION pgsched.outside_name(bigint,timestamp with time zone,integer) IS 'A name that no other database, and no other thing with this number, has: database, number, microsecond, reruns.';
COMMENT ON FUNCTION pgsched.pause_failing(integer) IS 'Pauses jobs by their pause_after_failures. The leader calls it.';
COMMENT ON FUNCTION pgsched.preview(text,integer) IS 'The next slots of a job, at most 10: when, in the job''s zone, and what is known of each.';
COMMENT ON FUNCTION pgsched.recent_runs(text,integer) IS 'The newest runs, at most 1,000: of a job by slot, or all that the caller may see.';
COMMENT ON FUNCTION pgsched.remove_calendar_times(text,bigint[]) IS 'Removes times of a calendar; returns how many.';
COMMENT ON FUNCTION pgsched.reset_mark(text) IS 'Sets the mark of a job that lies ahead of the clock to now or to its newest slot; returns the new mark.';
COMMENT ON FUNCTION pgsched.retry(bigint) IS 'Revives a run that ended and did not succeed. Returns its state now, or NULL: no such run.';
COMMENT ON FUNCTION pgsched.retry_now(bigint) IS 'As retry, without waiting again for the runs that it waited for.';
COMMENT ON FUNCTION pgsched.set_tags(bigint,text[]) IS 'Gives a run these tags in place of those that it has; returns them. NULL when there is no such run.';
COMMENT ON FUNCTION pgsched.slots(text,timestamp with time zone,timestamp with time zone,integer) IS 'What became of the slots of a job: one row for each slot, or stretch of slots, that is decided.';
COMMENT ON FUNCTION pgsched.task_options(text) IS 'What the newest release of a task says of its runs; nulls where it says nothing.';
COMMENT ON FUNCTION pgsched.trigger(text,jsonb,text) IS 'Runs a job now, beside its schedule. Returns the run''s id.';
COMMENT ON FUNCTION pgsched.update_run(bigint,integer,timestamp with time zone,text) IS 'Changes priority, time or queue of a run that has not started. Returns its state; NULL: there is no such run.';
