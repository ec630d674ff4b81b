-- Backfills of several jobs as one thing.

-- The jobs that a job waits for (upstream) and those that wait for it (downstream), itself or by way of others, and the job:
-- each one behind those that it waits for. With the rights of the caller, who sees its own jobs.
CREATE FUNCTION pgsched.jobs_in_order(job text, upstream boolean, downstream boolean) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
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
END $$;

-- Backfills of these jobs, one after the other: each begins when the one before it has ended. pgsched.backfill checks whose
-- jobs they are, and what is asked. The default mode repairs a chain: a failed run, and those that were skipped for it.
CREATE FUNCTION pgsched.backfill_in_order(jobs text[], from_at timestamptz, to_at timestamptz, mode text DEFAULT 'unsuccessful',
    max_active integer DEFAULT 1, reverse boolean DEFAULT false, priority integer DEFAULT 9) RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
END $$;
