-- What became of one slot of a job, in words: pgsched.explain. The words are those of pgsched/core/explain.py and
-- explanations.py, which also know the slots that are neither decided nor kept. Change both or neither.

-- A length of time: 0.4 seconds, 3 minutes, 1 minute 41 seconds, 2 days 5 hours.
CREATE FUNCTION pgsched.elapsed(length interval) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
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
$$;

-- The times between two instants in which no process led, oldest first: "from A to B and from C to D"; null without any.
-- `first_at`: when the first of them began.
CREATE FUNCTION pgsched.leader_absences(since timestamptz, until timestamptz, OUT words text, OUT first_at timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
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
$$;

-- Which pauses and limits hold a queued or waiting run; null where none does.
CREATE FUNCTION pgsched.holds(r pgsched.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
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
$$;

-- What a run waits for that waits for other runs: "run 7 (nightly, running), the same slot of weekly".
CREATE FUNCTION pgsched.waited_for(r pgsched.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(o.words, ', ' ORDER BY o.place) FILTER (WHERE o.place <= 3)
        || CASE WHEN max(o.place) > 3 THEN format(' and %s more', max(o.place) - 3) ELSE '' END
    FROM (
        SELECT w.words, row_number() OVER (ORDER BY w.rank, w.id) AS place FROM (
            SELECT 1 AS rank, p.id, format('run %s (%s)', p.id, concat_ws(', ', j.name, p.state)) AS words
            FROM pgsched.dependencies d JOIN pgsched.runs p ON p.id = d.parent_id LEFT JOIN pgsched.jobs j ON j.id = p.job_id
            WHERE r.available_at >= '8998-01-01 00:00Z' AND d.run_id = r.id AND d.state = 'open'
            UNION ALL
            SELECT 2, a.job_id, 'the same slot of ' || coalesce(j.name, 'job ' || a.job_id)
            FROM pgsched.after_jobs_of(r.options) a(job_id) LEFT JOIN pgsched.jobs j ON j.id = a.job_id
            WHERE r.available_at = '8998-01-01 00:00Z'
                AND NOT EXISTS (SELECT FROM pgsched.runs o WHERE o.job_id = a.job_id AND o.scheduled_at = r.scheduled_at)
            UNION ALL  -- the job's own open runs, where its policy holds this one
            SELECT 3, o.id, format('run %s (%s, slot %s)', o.id, o.state, pgsched.utc(o.scheduled_at))
            FROM (SELECT q.id, q.state, q.scheduled_at, q.origin FROM pgsched.runs q
                  WHERE q.job_id = r.job_id AND q.phase < 3 /* open */ AND r.available_at < '8998-01-01 00:00Z' LIMIT 1000) o
            WHERE o.id <> r.id AND o.origin <> 'backfill'
                AND (o.state <> 'waiting' OR (o.scheduled_at, o.id) < (r.scheduled_at, r.id))) w
    ) o
$$;

-- The first line of the last error of a run.
CREATE FUNCTION pgsched.last_error(r pgsched.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT split_part(coalesce(nullif(r.error, ''), (SELECT a.error FROM pgsched.attempts a WHERE a.run_id = r.id AND a.error <> ''
                                                     ORDER BY a.attempt DESC, a.finished_at DESC LIMIT 1)), E'\n', 1)
$$;

-- What a run is doing, or what became of it.
CREATE FUNCTION pgsched.explain_run(r pgsched.runs) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
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
END $$;

-- The tasks that live workers offer.
CREATE FUNCTION pgsched.offered_tasks() RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(SELECT DISTINCT t.name FROM pgsched.workers w CROSS JOIN LATERAL unnest(w.tasks) t(name)
        WHERE w.stopped_at IS NULL AND w.stopping_at IS NULL AND w.seen_at > clock_timestamp() - w.lease ORDER BY t.name LIMIT 10000)
$$;

-- The slots that a row stands for: "24 slots from A to B".
CREATE FUNCTION pgsched.stretch(r pgsched.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s from %s to %s', coalesce(r.covers_count || ' slots', 'the slots'), pgsched.utc(r.covers_from), pgsched.utc(r.covers_until))
$$;

-- Why a slot has its row: who asked for it, or how late it was decided; an empty text for one that was decided in time.
CREATE FUNCTION pgsched.row_origin(r pgsched.runs, slot timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN r.origin = 'manual' THEN '. It was asked for by hand'
        WHEN r.origin <> 'schedule' THEN format('. Backfill %s asked for it', r.backfill_id)
        WHEN r.created_at - slot <= interval '5 seconds' OR r.state IN ('skipped', 'missed')
            -- rows for these reasons are always made later than their slots
            AND r.reason ~ '^(paused since|excluded date|the job had ended: its (ends_at|max_runs))' THEN ''
        ELSE (SELECT format('. It was decided %s late', pgsched.elapsed(r.created_at - slot)) || coalesce(
                  CASE WHEN a.first_at - slot <= interval '5 seconds' THEN ', because' ELSE '; meanwhile' END || ' no process led ' || a.words, '')
              FROM pgsched.leader_absences(slot, r.created_at) a) END
$$;

-- What is known of a slot that has a row, its own or that of the stretch in which it lies.
CREATE FUNCTION pgsched.explain_row(j pgsched.jobs, r pgsched.runs, slot timestamptz) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own pgsched.runs := r;
    one_row text := format('one row, that of slot %s, run %s', pgsched.utc(r.scheduled_at), r.id);
    told text;
BEGIN
    IF r.scheduled_at = slot THEN
        RETURN format('run %s: %s%s', r.id, pgsched.explain_run(r), pgsched.row_origin(r, slot));
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
END $$;

-- What is known of an instant without a row. `is_slot`: it is known to be a slot of the job.
CREATE FUNCTION pgsched.explain_rowless(j pgsched.jobs, slot timestamptz, is_slot boolean) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
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
END $$;

-- What became of the slot of a job at an instant, and why; null: of its latest slot. An instant that is no slot stands
-- for the nearest one that is known. The answer comes from rows, from stretches that edits passed over, and from the next
-- slots that the leader keeps: where these say nothing, it says so.
CREATE FUNCTION pgsched.explain(job text, at timestamptz DEFAULT NULL) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
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
END $$;

-- The end of what an instant stands for: one of whole seconds stands for that second.
CREATE FUNCTION pgsched.end_of(at timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT at + CASE WHEN date_trunc('second', at) = at THEN interval '1 second' ELSE interval '1 microsecond' END
$$;

-- The row of a slot: its own, or that of the narrowest stretch in which it lies; all null: it has none. Below the slot it
-- reads all runs that a person made until the first other row, without a bound: it must not miss a stretch. 300,000 such
-- runs take a tenth of a second.
CREATE FUNCTION pgsched.row_of_slot(job_id bigint, slot timestamptz) RETURNS pgsched.runs
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
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
$$;

COMMENT ON FUNCTION pgsched.explain IS
    'What became of the slot of a job at an instant, and why; without one: of its latest slot.';
