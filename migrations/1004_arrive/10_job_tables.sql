-- Columns of jobs and runs for those who arrive from elsewhere, and calendars that jobs share.

-- Times at which jobs do not run. A job names one calendar (jobs.calendar); its own dates are in pgsched.job_calendars.
-- version: another one with each change of its times. replan: the leader is to plan the jobs again whose slots it shifts.
CREATE TABLE pgsched.calendars (
    name        text PRIMARY KEY,
    description text,
    owner       name NOT NULL DEFAULT current_user,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    version     uuid NOT NULL DEFAULT gen_random_uuid(),
    replan      boolean NOT NULL DEFAULT false,
    id          bigint GENERATED ALWAYS AS IDENTITY,  -- one that is deleted and made again has another
    CONSTRAINT calendars_name CHECK (length(name) BETWEEN 1 AND 200),
    CONSTRAINT calendars_description CHECK (length(description) <= 65536)
);

-- What a calendar excludes: the days from from_date to until_date (both null: every day) that fall on one of these weekdays
-- (0 to 6, Sunday is 0; null: on any), and of them the time from from_time to until_time, that one not included (both null:
-- the whole day). In the time zone of the job that is planned.
CREATE TABLE pgsched.calendar_times (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    calendar   text NOT NULL REFERENCES pgsched.calendars ON UPDATE CASCADE ON DELETE CASCADE,
    from_date  date,
    until_date date,
    weekdays   integer[],
    from_time  time,
    until_time time,
    reason     text,
    CONSTRAINT calendar_times_dates CHECK ((from_date IS NULL) = (until_date IS NULL) AND until_date >= from_date
        AND from_date >= '1970-01-01' AND until_date < '9000-01-01'),
    CONSTRAINT calendar_times_weekdays CHECK (cardinality(weekdays) BETWEEN 1 AND 7 AND weekdays <@ '{0,1,2,3,4,5,6}'),
    CONSTRAINT calendar_times_times CHECK ((from_time IS NULL) = (until_time IS NULL) AND until_time > from_time),
    CONSTRAINT calendar_times_something CHECK (from_date IS NOT NULL OR weekdays IS NOT NULL OR from_time IS NOT NULL),
    CONSTRAINT calendar_times_reason CHECK (length(reason) <= 10000)
);
CREATE INDEX calendar_times_calendar ON pgsched.calendar_times (calendar, from_date);
CREATE INDEX calendars_replan ON pgsched.calendars (name) WHERE replan;

ALTER TABLE pgsched.jobs
    ADD COLUMN mode text NOT NULL DEFAULT 'run',
    ADD COLUMN calendar text REFERENCES pgsched.calendars ON UPDATE CASCADE,
    ADD COLUMN on_excluded text NOT NULL DEFAULT 'skip',
    ADD COLUMN after_match text NOT NULL DEFAULT 'same',
    ADD COLUMN pause_after_failures integer,
    ADD COLUMN finish_by interval,
    ADD COLUMN ping_url text,
    ADD COLUMN alert_to text[],
    ADD COLUMN resumed_at timestamptz,  -- pause_after_failures counts runs that ended after this
    ADD COLUMN shifts jsonb;
CREATE INDEX jobs_calendar ON pgsched.jobs (calendar, id) WHERE calendar IS NOT NULL;

-- What a calendar makes of the slots of a stretch, as the job had it when they were passed over.
ALTER TABLE pgsched.passed_over
    ADD COLUMN calendar text,
    ADD COLUMN on_excluded text NOT NULL DEFAULT 'skip',
    ADD COLUMN shifts jsonb;

-- nominals: where the schedule has each slot that a calendar has shifted; null: there. excluded: by which times they were
-- shifted (pgsched.excluded_mark); null: by none.
ALTER TABLE pgsched.next_slots
    ADD COLUMN nominals timestamptz[] NOT NULL DEFAULT '{}',
    ADD COLUMN excluded text;

-- Where the interval of a slot begins: at the slot before it. nominal_at: where the schedule has the slot, if a calendar has
-- shifted it. slot_zone: the time zone of the job when the run was made; null is UTC, so that most rows need no place for it.
ALTER TABLE pgsched.runs
    ADD COLUMN interval_start timestamptz,
    ADD COLUMN nominal_at timestamptz,
    ADD COLUMN slot_zone text;

-- Backfills that were requested together (pgsched.backfill_in_order): the first one of them, and the one before, which has to
-- end first.
ALTER TABLE pgsched.backfills
    ADD COLUMN together bigint,
    ADD COLUMN after_backfill bigint,
    DROP CONSTRAINT backfills_mode,
    ADD CONSTRAINT backfills_mode CHECK (mode IN ('missing', 'failed', 'unsuccessful', 'all')) NOT VALID;

-- Owners of files of jobs (pgsched apply --owner). A name belongs to the role that used it first: only who may act for that
-- role, or operators among themselves, change what it declares. An apply locks the row until it has committed.
CREATE TABLE pgsched.file_owners (
    name       text PRIMARY KEY,
    role       name NOT NULL DEFAULT current_user,
    applied_at timestamptz,
    CONSTRAINT file_owners_name CHECK (length(name) BETWEEN 1 AND 200)
);

-- What was declared in a file, by the name of its owner: only that is changed or pruned with the file.
-- object_id: the id of the job or calendar. An entry is about that row alone, and about none of the same name that is made
-- later. decides: which of the columns mode and paused the file names. run_at: what it names for a job that runs once.
-- what = 'done': a job that ran once and has deleted itself; any number of owners may have one of the same name.
CREATE TABLE pgsched.file_entries (
    owner       text NOT NULL REFERENCES pgsched.file_owners ON UPDATE CASCADE,
    what        text NOT NULL,
    name        text NOT NULL,
    declared_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    object_id   bigint,
    decides     text[] NOT NULL DEFAULT '{}',
    run_at      timestamptz,
    PRIMARY KEY (owner, what, name),
    CONSTRAINT file_entries_what CHECK (what IN ('job', 'queue', 'limit', 'pause', 'calendar', 'retention', 'alerts', 'done')),
    CONSTRAINT file_entries_name CHECK (length(name) <= 500),
    CONSTRAINT file_entries_decides CHECK (decides <@ '{mode,paused}' AND cardinality(decides) <= 2)
);
CREATE UNIQUE INDEX file_entries_declared ON pgsched.file_entries (what, name) WHERE what <> 'done';
