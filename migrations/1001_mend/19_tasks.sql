-- What the code of each app says of its tasks, release by release. It outlives the workers: a run that plain SQL makes,
-- while no worker is there, takes its task's options as well.

-- A worker registers its tasks when it starts (pgsched.register_tasks). A release of a task is told by its options and its
-- schema; the one that was registered for the first time last holds, whoever starts again later.
CREATE TABLE pgsched.tasks (
    task          text NOT NULL,
    app           text NOT NULL,
    release       text NOT NULL,
    options       jsonb NOT NULL DEFAULT '{}',  -- queue, priority, max_attempts, timeout (seconds), tags, concurrency_key
    schema        jsonb NOT NULL DEFAULT '{}',  -- of the arguments, as JSON Schema
    owner         name NOT NULL,
    first_seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT tasks_pkey PRIMARY KEY (task, app, release),
    CONSTRAINT tasks_size CHECK (length(app) <= 200 AND length(task) BETWEEN 1 AND 200 AND length(release) <= 100
        AND pg_column_size(options) <= 65536 AND pg_column_size(schema) <= 65536)
);
CREATE INDEX tasks_of_app ON pgsched.tasks (app);

-- The release of each of `tasks`, in that order.
ALTER TABLE pgsched.workers ADD COLUMN releases text[],
    ADD CONSTRAINT workers_releases_size CHECK (coalesce(pg_column_size(releases), 0) <= 16777216) NOT VALID;

-- A bit for each task that has options, as gated_queues has one for each queue that has settings: a run of any other task
-- costs its maker no look at the table. A bit too many costs only that look; one is never taken out.
CREATE SEQUENCE pgsched.tasks_with_options MINVALUE 0 START 0;
GRANT SELECT ON SEQUENCE pgsched.tasks_with_options TO PUBLIC;

-- A trigger cannot tell "not given" from "given as 3": what a run's task may decide is null until pgsched.runs_before_insert
-- has decided it. What says so itself keeps it.
ALTER TABLE pgsched.runs ALTER COLUMN queue DROP DEFAULT, ALTER COLUMN priority DROP DEFAULT,
    ALTER COLUMN max_attempts DROP DEFAULT;
-- In a job null says so for as long as it lives: its runs take what the task says when they are made.
ALTER TABLE pgsched.jobs ALTER COLUMN queue DROP DEFAULT, ALTER COLUMN queue DROP NOT NULL,
    ALTER COLUMN priority DROP DEFAULT, ALTER COLUMN priority DROP NOT NULL,
    ALTER COLUMN max_attempts DROP DEFAULT, ALTER COLUMN max_attempts DROP NOT NULL;

-- What is wrong with the options of a task. They are put into rows that others make, also the leader: none may refuse those.
CREATE FUNCTION pgsched.task_options_error(options jsonb) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
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
                                THEN 'concurrency_key: "job" is for the limits of jobs' END) END);
EXCEPTION WHEN data_exception THEN
    RETURN format('options: %s', SQLERRM);
END $$;

-- How many releases of one task of an app are kept.
CREATE FUNCTION pgsched.releases_kept() RETURNS integer
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$ SELECT 20 $$;

-- Registers the tasks of an app: an array of {"task", "release", "options", "schema"}. What is known already is left as it
-- is, and locked by nobody. Returns null, or the role that owns the app, if it is not the caller's: then nothing is
-- registered. With its owner's rights: nobody else writes the table.
CREATE FUNCTION pgsched.register_tasks(app text, given jsonb) RETURNS name
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text;
    of_other name := (SELECT t.owner FROM pgsched.tasks t WHERE t.app = register_tasks.app
                        AND t.owner <> pgsched.caller() AND EXISTS (SELECT FROM pg_roles r
                            WHERE r.rolname = t.owner AND NOT pg_has_role(pgsched.caller(), r.oid, 'MEMBER')) LIMIT 1);
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
        coalesce(pgsched.bad_text('task', g.task, 200), pgsched.task_options_error(coalesce(g.options, '{}'))) AS e
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
END $$;

-- The options of a task: those that were registered last; no row where it is not known. With its owner's rights: whoever may
-- make a run may make one of this task.
CREATE FUNCTION pgsched.task_options(task text, OUT queue text, OUT priority smallint, OUT max_attempts integer,
    OUT timeout interval, OUT tags text[], OUT concurrency_key text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
END $$;

-- A run that the trigger does not look at, because whoever makes it has judged it (`checked`) or replays rows: what he has
-- not said is the product's.
CREATE FUNCTION pgsched.runs_decided() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.queue := coalesce(NEW.queue, 'default');
    NEW.priority := coalesce(NEW.priority, 5);
    NEW.max_attempts := coalesce(NEW.max_attempts, 3);
    RETURN NEW;
END $$;
CREATE TRIGGER b_decided BEFORE INSERT ON pgsched.runs FOR EACH ROW
    WHEN (NEW.queue IS NULL OR NEW.priority IS NULL OR NEW.max_attempts IS NULL) EXECUTE FUNCTION pgsched.runs_decided();
ALTER TABLE pgsched.runs ENABLE ALWAYS TRIGGER b_decided;

-- Sets the bits of all tasks that have options: after a restore, a crash or somebody's setval some may be missing.
CREATE FUNCTION pgsched.mark_tasks() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- before the sequence is read: a bit that pgsched.register_tasks sets while the table is read must not be lost
    bits bigint := (SELECT bit_or(pgsched.queue_bit(t.task)) FROM pgsched.tasks t WHERE t.options <> '{}');
BEGIN
    PERFORM setval('pgsched.tasks_with_options',
        coalesce(pg_sequence_last_value('pgsched.tasks_with_options'), 0) | coalesce(bits, 0));
END $$;

COMMENT ON TABLE pgsched.tasks IS
    'What the code of each app says of its tasks. Of several releases of one task the one that was first seen last holds.';
COMMENT ON COLUMN pgsched.tasks.app IS 'The app whose worker registered it.';
COMMENT ON COLUMN pgsched.tasks.task IS 'Its name, as runs and jobs have it.';
COMMENT ON COLUMN pgsched.tasks.release IS 'What tells these options and this schema from others of the same task.';
COMMENT ON COLUMN pgsched.tasks.options IS
    'What its runs take unless the call or the job says otherwise: queue, priority, max_attempts, timeout (seconds), tags, concurrency_key.';
COMMENT ON COLUMN pgsched.tasks.schema IS 'The arguments that it takes, as JSON Schema.';
COMMENT ON COLUMN pgsched.tasks.owner IS 'The role that registered it. Another role''s worker cannot register tasks of the same app.';
COMMENT ON COLUMN pgsched.tasks.first_seen_at IS 'When a worker registered this release for the first time.';
COMMENT ON COLUMN pgsched.workers.releases IS 'The release of each of its tasks, in their order (pgsched.tasks).';
COMMENT ON COLUMN pgsched.jobs.queue IS 'The queue that its runs stand in; NULL: what its task says (pgsched.tasks), or "default".';
COMMENT ON COLUMN pgsched.jobs.priority IS '0 to 9; lower goes first within a queue. NULL: what its task says, or 5.';
COMMENT ON COLUMN pgsched.jobs.max_attempts IS '1 to 1000; then the run is dead. NULL: what its task says, or 3.';
COMMENT ON COLUMN pgsched.runs.queue IS 'The queue that it stands in. Not given: its task''s (pgsched.tasks), or "default".';
COMMENT ON COLUMN pgsched.runs.priority IS '0 to 9; lower goes first within a queue. Not given: its task''s, or 5.';
COMMENT ON COLUMN pgsched.runs.max_attempts IS 'After so many it is dead. Not given: its task''s, or 3.';
COMMENT ON SEQUENCE pgsched.tasks_with_options IS 'pgsched''s own: a bit for each task that has options; see rebuild_flags().';
COMMENT ON FUNCTION pgsched.task_options IS 'What the newest release of a task says of its runs; nulls where it says nothing.';
