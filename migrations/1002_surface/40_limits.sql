-- Limits that a task declares: a row named task:NAME, which binds the keys task:NAME and task:NAME:... of its runs.

-- The limit that binds a key: its job's own, that of its whole name, or that of what is before its first colon (before the
-- second one in a task's keys, task:NAME:...).
CREATE OR REPLACE FUNCTION pgsched.limit_of(key text, OUT name text, OUT concurrency integer, OUT rate integer,
    OUT period_s double precision, OUT burst integer, OUT ordered boolean, OUT weight integer)
RETURNS SETOF record LANGUAGE sql STABLE AS $$
    SELECT j.name, j.concurrency_limit, NULL::integer, NULL::double precision, NULL::integer, false, 1
    FROM pgsched.jobs j
    WHERE j.id = CASE WHEN $1 ~ '^job:[0-9]{1,18}(:|$)' THEN split_part($1, ':', 2)::bigint END
    UNION ALL
    (SELECT l.name, l.concurrency, l.rate, extract(epoch FROM l.rate_period)::double precision, l.rate_burst, l.ordered,
         l.weight
     FROM pgsched.limits l WHERE l.name = ANY (ARRAY[$1, split_part($1, ':', 1),
         CASE WHEN $1 ~ '^task:' THEN 'task:' || split_part($1, ':', 2) END]) ORDER BY length(l.name) DESC LIMIT 1)
$$;

-- The key of a job's run: its template with {name} replaced by that argument (none: nothing). A job with a limit of its
-- own has keys of its own; all its runs share one where there is no template. One pass over the template: braces in a value
-- are text. A long value is cut, with a hash of the whole behind it, so that two of them stay apart. The keys job:... belong
-- to the limits of jobs, and task:... to those of tasks: what a template makes of its arguments gets a dash before it.
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
END $$;

-- The key of a run whose task declares a limit (`more`: pgsched.task_options): that limit holds for each key by itself. A
-- job's own limit comes first.
CREATE FUNCTION pgsched.limited_key(task text, more jsonb, key text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN more ?| '{concurrency,rate}' AND key !~ '^job(:|$)' AND NOT starts_with(key || ':', 'task:' || task || ':')
        THEN 'task:' || task || ':' || key ELSE key END
$$;

-- A limit that a job gets, changes or loses holds for its unfinished runs as well: those that are queued go through
-- admission again. Those that are just being made hold the job's key: they have to be seen first. As with new runs
-- (pgsched.runs_before_insert), the key of the task holds where the job has none.
CREATE OR REPLACE FUNCTION pgsched.jobs_rekey() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
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
END $$;

-- Makes the limits of an app's tasks what the newest release of each task declares (pgsched.tasks). Rows that differ are
-- written, also where a person changed them; rows that a person made are left alone. Without `update` only missing rows are
-- made. Returns what was done with each. With its owner's rights, and for the app's owner alone.
CREATE FUNCTION pgsched.declare_limits(app text, update boolean) RETURNS TABLE (name text, done text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
END $$;

COMMENT ON FUNCTION pgsched.declare_limits IS 'Makes the limits of an app''s tasks what the newest release of each declares.';
