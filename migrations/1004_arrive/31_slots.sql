-- Slots that were due but undecided when a job was edited or resumed end as missed where they came before the pause
-- (nobody decided them in time), and as skipped where they fell into it. They lie behind the mark, which only decisions
-- move: the leader, who alone can read schedules, turns the stretch into one row (leader/passed_over.py). (LANGUAGE sql:
-- a function of one line costs as much as all of this.)
CREATE OR REPLACE FUNCTION pgsched.pass_over(j pgsched.jobs, moment timestamptz, edited boolean) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
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
$$;

-- Slots between a job's end and the edit that puts the end off: they were none until that edit, and are passed over by
-- it. Returns whether the job goes on; one that is still at its end has no such slots.
CREATE OR REPLACE FUNCTION pgsched.pass_over_end(j pgsched.jobs, edited pgsched.jobs, moment timestamptz) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
END $$;

-- Slots of a new schedule that lie ahead, but not behind the mark: the clock has stepped back, and what lies before the
-- mark is not decided twice.
CREATE OR REPLACE FUNCTION pgsched.pass_over_ahead(edited pgsched.jobs, moment timestamptz) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO pgsched.passed_over (job_id, schedule, timezone, anchor_at, after_at, until_at, state, reason,
        calendar, on_excluded, shifts)
    SELECT edited.id, edited.schedule, edited.timezone, edited.anchor_at, s.after_at, s.until_at, 'skipped',
        format('the schedule was edited at %s while the clock stood before %s, until which slots are decided',
               pgsched.utc(moment), pgsched.utc(edited.decided_until)),
        edited.calendar, edited.on_excluded, edited.shifts
    FROM (SELECT greatest(moment, edited.starts_at - interval '1 microsecond') AS after_at,
                 least(edited.decided_until, edited.ends_at) AS until_at) s
    WHERE s.after_at < s.until_at
$$;

-- Excluded dates put off the slots of @after, and shift those of a job with another on_excluded than skip: such jobs are
-- planned anew. Other slots stay where they are, and whether one is excluded is asked when it is due.
CREATE OR REPLACE FUNCTION pgsched.job_calendars_after() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pgsched.jobs j SET next_run_at = clock_timestamp()
    WHERE j.id IN (OLD.job_id, NEW.job_id) AND (j.schedule IS NOT NULL OR j.on_excluded <> 'skip')
        AND (j.next_run_at > clock_timestamp() OR pgsched.may_go_on(j));
    PERFORM pgsched.notify('pgsched_leader', 'jobs');
    RETURN NULL;
END $$;

-- Asks for the slots of a job in [from_at, to_at) once more; returns the backfill's id. Slots that are not decided yet
-- are left to the schedule. What is wrong is refused here, but for the number of slots: the leader counts them, and ends
-- a backfill that has none or too many with that as its error. The leader makes its runs, so no row policy judges their
-- priority: whoever is bound by a policy that an administrator made for new runs leaves it out.
CREATE OR REPLACE FUNCTION pgsched.backfill(job text, from_at timestamptz, to_at timestamptz, mode text DEFAULT 'missing',
    max_active integer DEFAULT 1, reverse boolean DEFAULT false, priority integer DEFAULT 9) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
END $$;

-- With a backfill end those that were requested together with it: they are one thing. They are locked in the order of
-- their ids, and each one's owner is asked for.
CREATE OR REPLACE FUNCTION pgsched.cancel_backfill(backfill_id bigint, why text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
END $$;
