-- The leader's tick: from due jobs to rows.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: admit_scheduled
-- make scheduled runs claimable whose time has come, and wake the workers of their queues. Limited runs wait for their
-- limits from now on.
-- params: n int, aside bigint[] as text (runs to leave out), act boolean (false: only return the first), scheduled_s
--         float8 (since 1970: runs that were due before are left out)
-- returns: done bigint: how many; first bigint: one of them
-- locks: row locks on those runs, skipping locked ones
WITH due AS MATERIALIZED (
    -- the clock is asked once, and bounds the scan; asked for each row it would only filter it, and all that is
    -- scheduled be read
    SELECT id FROM pgsched.runs WHERE phase = 1 /* scheduled */ AND available_at <= (SELECT clock_timestamp())
      AND available_at >= to_timestamp(%(scheduled_s)s::float8) AND id <> ALL (%(aside)s::text::bigint[])
    ORDER BY available_at, id LIMIT %(n)s FOR UPDATE SKIP LOCKED
), admitted AS (
    UPDATE pgsched.runs r SET (state, phase) = (  -- OFFSET 0: asked for once
            SELECT b.state, pgsched.phase_of(b.state)
            FROM (SELECT pgsched.back_in_line('queued', r.queue, r.concurrency_key) OFFSET 0) AS b(state)),
        -- what was admitted before keeps its place
        ready_at = CASE WHEN pgsched.is_limited(r.queue, r.concurrency_key)
                   THEN coalesce(r.ready_at, clock_timestamp()) ELSE r.ready_at END
    FROM due WHERE r.id = due.id AND %(act)s::boolean RETURNING r.queue, r.state
), woken AS (
    SELECT pgsched.notify('pgsched_runs', pgsched.queue_mark(queue)) FROM (SELECT DISTINCT queue FROM admitted WHERE state = 'queued') q
)
SELECT (SELECT count(*) FROM admitted) AS done, (SELECT id FROM due LIMIT 1) AS first,
    (SELECT count(*) FROM woken) AS notified


-- name: admit_waiting
-- start, per job, the oldest run that a policy keeps waiting once no other run of the job is open, unless it may not
-- start any more. A run that has started once may always. A backfill's runs keep no other run waiting, nor do runs that
-- were retried and wait for other runs. A limited run waits for its limits from then on, and counts as open;
-- retry_within no longer applies to it.
-- params: n int, aside bigint[] as text (runs to leave out), act boolean (false: only return the first)
-- returns: done bigint: how many; first bigint: one of them
-- locks: row locks on those runs, skipping locked ones
WITH RECURSIVE oldest AS (
    -- one probe of the index a job, not one row of it for each held run: a job may have a hundred thousand of them
    (SELECT job_id, id FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NULL AND job_id IS NOT NULL
         AND (available_at < '8998-01-01 00:00Z' OR origin <> 'backfill' AND reruns IS NULL)
     ORDER BY job_id, scheduled_at, id LIMIT 1)
    UNION ALL
    SELECT next.job_id, next.id FROM oldest CROSS JOIN LATERAL (
        SELECT r.job_id, r.id FROM pgsched.runs r WHERE r.phase = 0 /* waiting */ AND r.ready_at IS NULL
            AND r.job_id > oldest.job_id
            AND (r.available_at < '8998-01-01 00:00Z' OR r.origin <> 'backfill' AND r.reruns IS NULL)
        ORDER BY r.job_id, r.scheduled_at, r.id LIMIT 1
    ) next
), unblocked AS MATERIALIZED (
    -- not NOT EXISTS: stale statistics would make a join of it that reads all open runs of all jobs
    SELECT oldest.id FROM oldest
    WHERE (SELECT true FROM pgsched.runs o WHERE o.job_id = oldest.job_id AND o.phase < 3 /* open */
           AND (o.state <> 'waiting' OR o.ready_at IS NOT NULL) AND o.origin <> 'backfill' LIMIT 1) IS NULL
    UNION ALL
    -- the clock is asked once and bounds the scan: all that waits for other runs would be read else
    SELECT id FROM pgsched.runs
    WHERE phase = 0 /* waiting */ AND ready_at IS NULL AND job_id IS NULL AND available_at <= (SELECT clock_timestamp())
), free AS MATERIALIZED (
    -- by key, and not by phase: an index of that would be read through
    SELECT w.id FROM pgsched.runs w
    WHERE w.id = ANY (ARRAY(SELECT id FROM unblocked)) AND w.state = 'waiting' AND w.ready_at IS NULL
      AND w.available_at <= clock_timestamp()
      AND coalesce(least(w.held_until, w.expires_at) > clock_timestamp() OR w.started_at IS NOT NULL, true)
      AND w.id <> ALL (%(aside)s::text::bigint[])
    ORDER BY w.available_at, w.id LIMIT %(n)s FOR UPDATE SKIP LOCKED
), admitted AS (
    UPDATE pgsched.runs r SET (state, phase) = (  -- OFFSET 0: asked for once
            SELECT b.state, pgsched.phase_of(b.state)
            FROM (SELECT pgsched.back_in_line('queued', r.queue, r.concurrency_key) OFFSET 0) AS b(state)),
        ready_at = CASE WHEN pgsched.is_limited(r.queue, r.concurrency_key) THEN clock_timestamp() END, held_until = NULL
    FROM free WHERE r.id = free.id AND %(act)s::boolean RETURNING r.queue, r.state
), woken AS (
    SELECT pgsched.notify('pgsched_runs', pgsched.queue_mark(queue)) FROM (SELECT DISTINCT queue FROM admitted WHERE state = 'queued') q
)
SELECT (SELECT count(*) FROM admitted) AS done, (SELECT id FROM free LIMIT 1) AS first,
    (SELECT count(*) FROM woken) AS notified


-- name: leader_candidates
-- count the candidates for leader.
-- params: none
-- returns: n int: sessions of candidates in this database, including the leader's and this one
-- locks: none
SELECT count(*)::int AS n FROM pg_stat_activity
WHERE datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND application_name LIKE 'pgsched leader %%'


-- name: next_slots_keep
-- keep the next slots of jobs, in place of those that were kept. A job that another transaction has locked (it is being
-- deleted) is left out.
-- params: parallel arrays, one element a job: job_ids bigint[], schedules text[], timezones text[], anchors
--         timestamptz[], afters timestamptz[], excludeds text[] (as they were read), slots text[], offsets text[] and
--         nominals text[] (each an array literal: the slots, the seconds that the zone is ahead of UTC at each, and where
--         the schedule has those that are shifted), refresh_ats timestamptz[] (null: the schedule has no further slots);
--         rules text (release of the time zone rules)
-- returns: nothing
-- locks: FOR KEY SHARE on those jobs, skipping locked ones; their rows of next_slots
INSERT INTO pgsched.next_slots AS k (job_id, schedule, timezone, anchor_at, after_at, slots, offsets, rules, refresh_at,
    nominals, excluded)
SELECT j.id, s.schedule, s.timezone, s.anchor_at, s.after_at, s.slots::timestamptz[], s.offsets::integer[], %(rules)s::text, s.refresh_at,
    s.nominals::timestamptz[], s.excluded
FROM unnest(%(job_ids)s::bigint[], %(schedules)s::text[], %(timezones)s::text[], %(anchors)s::timestamptz[], %(afters)s::timestamptz[],
            %(slots)s::text[], %(offsets)s::text[], %(refresh_ats)s::timestamptz[], %(nominals)s::text[], %(excludeds)s::text[])
    AS s(job_id, schedule, timezone, anchor_at, after_at, slots, offsets, refresh_at, nominals, excluded)
CROSS JOIN LATERAL (SELECT o.id FROM pgsched.jobs o WHERE o.id = s.job_id FOR KEY SHARE SKIP LOCKED) j
ON CONFLICT (job_id) DO UPDATE SET (schedule, timezone, anchor_at, after_at, slots, offsets, rules, refresh_at, nominals,
        excluded)
    = (excluded.schedule, excluded.timezone, excluded.anchor_at, excluded.after_at, excluded.slots, excluded.offsets,
       excluded.rules, excluded.refresh_at, excluded.nominals, excluded.excluded)


-- name: next_slots_page
-- return the next jobs by id, so that a leader looks at each once.
-- params: after bigint (id), n int
-- returns: id
-- locks: none
SELECT id FROM pgsched.jobs WHERE id > %(after)s ORDER BY id LIMIT %(n)s


-- name: next_slots_wanting
-- return those of these jobs whose next slots are not kept, or are running out.
-- params: job_ids bigint[] as text, rules text (release of the time zone rules that this leader computes with), ahead_s
--         float8: slots that run out within so many seconds
-- returns: (id, schedule, timezone, anchor_at, after_at: the slots to keep lie after this, calendar, on_excluded, shifts,
--          excluded: its own dates and mark: by which excluded times its slots are shifted; both null if they are not)
-- locks: none
SELECT j.id, j.schedule, j.timezone, j.anchor_at,
    greatest(nullif(j.decided_until, '-infinity'), j.starts_at - interval '1 microsecond') AS after_at,
    j.calendar, j.on_excluded, j.shifts,
    CASE WHEN j.on_excluded <> 'skip' OR j.shifts IS NOT NULL THEN (
        SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason))
        FROM pgsched.job_calendars c WHERE c.job_id = j.id) END AS excluded,
    CASE WHEN j.on_excluded <> 'skip' OR j.shifts IS NOT NULL THEN pgsched.excluded_mark(j) END AS mark
FROM pgsched.jobs j LEFT JOIN LATERAL (SELECT * FROM pgsched.next_slots o WHERE o.job_id = j.id OFFSET 0) k ON true
WHERE j.id = ANY (%(job_ids)s::text::bigint[]) AND NOT j.paused AND j.error IS NULL AND j.next_run_at IS NOT NULL
    AND j.schedule !~* '@after' AND j.decided_until <> '-infinity'
    AND (k.job_id IS NULL OR k.refresh_at <= clock_timestamp() + make_interval(secs => %(ahead_s)s::float8)
         OR (k.schedule, k.timezone, k.anchor_at) <> (j.schedule, j.timezone, j.anchor_at)
         OR (k.excluded IS NOT NULL OR j.on_excluded <> 'skip' OR j.shifts IS NOT NULL)
            AND k.excluded IS DISTINCT FROM pgsched.excluded_mark(j)
         OR k.rules <> %(rules)s::text AND j.timezone <> 'UTC')


-- name: passed_over_first
-- return the stretch that passed_over_take would begin with.
-- params: aside bigint[] as text
-- returns: id, or null
-- locks: none
SELECT min(id) AS id FROM pgsched.passed_over WHERE id <> ALL (%(aside)s::text::bigint[])


-- name: passed_over_take
-- take out stretches of slots that an edit or a resume passed over. The rows that record them are inserted in the same
-- transaction.
-- params: n int, aside bigint[] as text (stretches to leave out)
-- returns: (job_id, schedule (null: the job runs once, and its slot is until_at), timezone, anchor_at, after_at,
--          until_at, state, reason, calendar, on_excluded, shifts, excluded: the job's own dates, known: the slots in the
--          stretch for which the job has a row), oldest first
-- locks: those stretches, skipping locked ones
WITH taken AS (
    DELETE FROM pgsched.passed_over WHERE id IN (
        SELECT id FROM pgsched.passed_over WHERE id <> ALL (%(aside)s::text::bigint[]) ORDER BY id LIMIT %(n)s FOR UPDATE SKIP LOCKED
    )
    RETURNING id, job_id, schedule, timezone, anchor_at, after_at, until_at, state, reason, calendar, on_excluded, shifts
)
SELECT job_id, schedule, timezone, anchor_at, after_at, until_at, state, reason, calendar, on_excluded, shifts,
    CASE WHEN on_excluded <> 'skip' OR shifts IS NOT NULL THEN (
        SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason))
        FROM pgsched.job_calendars c WHERE c.job_id = t.job_id) END AS excluded,
    ARRAY(SELECT r.scheduled_at FROM pgsched.runs r
          WHERE r.job_id = t.job_id AND r.scheduled_at > t.after_at AND r.scheduled_at <= t.until_at) AS known
FROM taken t ORDER BY id


-- name: plans_again
-- let jobs be planned again whose next slot is not the one that was planned. A job that was planned in the meantime is
-- left alone.
-- params: parallel arrays job_ids bigint[], next_run_ats timestamptz[] (as they were read)
-- returns: id of each, without locked ones
-- locks: those jobs, skipping locked ones
WITH free AS MATERIALIZED (
    SELECT j.id FROM unnest(%(job_ids)s::bigint[], %(next_run_ats)s::timestamptz[]) AS s(job_id, next_run_at)
    JOIN pgsched.jobs j ON j.id = s.job_id AND j.next_run_at = s.next_run_at
    FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE pgsched.jobs j SET next_run_at = clock_timestamp() FROM free WHERE j.id = free.id
RETURNING j.id


-- name: plans_look
-- return jobs with their planned next slots, for a new leader to compare with its own rules of time zones.
-- params: after bigint (id), n int
-- returns: (id, schedule, timezone, mark, next_run_at, shifted) in the order of id; `mark`: its slots lie after this;
--          schedule is null if no time zone matters for the next slot, or if it is due and will be planned anyway;
--          `shifted`: a calendar may shift the next slot
-- locks: none
SELECT j.id, CASE WHEN j.next_run_at > clock_timestamp() AND j.timezone <> 'UTC' AND j.decided_until <> '-infinity'
                       AND j.schedule !~* '@(every|after)' THEN j.schedule END AS schedule,
    j.timezone, greatest(nullif(j.decided_until, '-infinity'), j.starts_at - interval '1 microsecond') AS mark, j.next_run_at,
    j.next_run_at > clock_timestamp() AND (j.on_excluded <> 'skip' OR j.shifts IS NOT NULL) AS shifted
FROM pgsched.jobs j WHERE j.id > %(after)s
ORDER BY j.id LIMIT %(n)s


-- name: succeeded_slots
-- return the slots of a job since a time whose run has succeeded.
-- params: job_id bigint, start timestamptz
-- returns: scheduled_at
-- locks: none
SELECT scheduled_at FROM pgsched.runs
WHERE job_id = %(job_id)s AND scheduled_at >= %(start)s AND state = 'succeeded'


-- name: tick_advance
-- move each decided job's high-water mark and next slot; keep or clear its error.
-- params: parallel arrays, one element for an outcome that many jobs may share: job_ids text[] (each an array literal),
--         decided_untils timestamptz[], next_run_ats timestamptz[] (null: no slot is left), run_counts int[] (new rows
--         that are runs), errors text[] (null: none), shifts text[] (which nominal slots are decided, as JSON; null:
--         unchanged, empty: no calendar shifts slots any more); an array that is too short continues with nulls
-- returns: nothing; sets pgsched.ticks for the transaction, by which the trigger b_plan_again recognizes the leader
-- locks: the rows that tick_due locked
UPDATE pgsched.jobs j SET
    decided_until = coalesce(greatest(j.decided_until, s.decided_until), j.decided_until),
    next_run_at = s.next_run_at, run_count = j.run_count + coalesce(s.run_count, 0), error = s.error,
    error_at = CASE WHEN s.error = j.error THEN j.error_at WHEN s.error IS NOT NULL THEN clock_timestamp() END,
    shifts = CASE WHEN s.shifts IS NULL THEN j.shifts ELSE nullif(s.shifts, '')::jsonb END
FROM unnest(%(job_ids)s::text[], %(decided_untils)s::timestamptz[], %(next_run_ats)s::timestamptz[],
            %(run_counts)s::int[], %(errors)s::text[], %(shifts)s::text[])
    AS s(job_ids, decided_until, next_run_at, run_count, error, shifts)
CROSS JOIN LATERAL unnest(s.job_ids::bigint[]) AS i(id)
CROSS JOIN (SELECT set_config('pgsched.ticks', 'on', true) AS ticks) t
WHERE j.id = i.id AND t.ticks = 'on'


-- name: tick_again
-- make jobs due again that are in error because a former leader's tz database did not know their time zone: this
-- leader's may. Do the same for jobs in error because the database refused their rows: former versions set this error
-- also where the job's own values were not the cause. Slots that came due in the meantime are decided late.
-- params: none
-- returns: nothing; the number of rows says how many
-- locks: FOR NO KEY UPDATE on those jobs, skipping locked ones. Paused jobs are looked at when they are resumed.
UPDATE pgsched.jobs j SET next_run_at = clock_timestamp() WHERE j.id = ANY (ARRAY(
    SELECT o.id FROM pgsched.jobs o
    WHERE o.error IS NOT NULL AND (starts_with(o.error, 'timezone: ') OR starts_with(o.error, 'the database refuses its row: '))
      AND o.next_run_at IS NULL AND NOT o.paused
    FOR NO KEY UPDATE SKIP LOCKED))


-- name: tick_crossed
-- check whether a job that was prepared ahead of a time has got an unfinished run in the meantime. Its row was locked,
-- but pgsched.trigger, a retry and a plain insert take no lock that conflicts. Asked when that time has come.
-- params: job_ids bigint[] (locked by tick_due), at timestamptz (a run of this slot is the batch's own)
-- returns: crossed boolean
-- locks: none
SELECT EXISTS (
    SELECT FROM pgsched.runs r
    WHERE r.job_id = ANY(%(job_ids)s::bigint[]) AND r.phase < 3 /* open */ AND r.origin <> 'backfill'
      AND (r.reruns IS NULL OR r.phase > 0 OR r.ready_at IS NOT NULL)  -- as in tick_open
      AND r.scheduled_at IS DISTINCT FROM %(at)s::timestamptz
) AS crossed


-- name: tick_due
-- lock the jobs whose next slot (or plan) is due. Unfinished runs, which other transactions can change beside these
-- rows, are read by a later statement, because this statement's snapshot is older than its locks.
-- params: n int, lead_s float8: if nothing is due, take jobs that are due within this many seconds, all at one time;
--         aside bigint[] as text: jobs to leave out; since_s float8 (since 1970: jobs that were due before are left
--         out)
-- returns: (id, now, mark, anchor, dated, shape). `now`: the time at which the whole batch is decided, which lies ahead
--          of the clock if nothing is due earlier; `mark`: its slots lie after this, the high-water mark or the time
--          just before its start (null: a job that runs once and was not decided yet); `anchor`: where it began, if its
--          slots count from there; `dated`: it has excluded dates of its own, or a calendar shifts its slots. Jobs of one `shape` have the same schedule and
--          policies: tick_terms is needed for one of them only
-- locks: FOR NO KEY UPDATE on those jobs, skipping locked ones: an edit or a delete in progress is decided in the next
--        tick
WITH clock AS MATERIALIZED (
    SELECT CASE WHEN at BETWEEN now AND now + make_interval(secs => %(lead_s)s) THEN at ELSE now END AS now
    FROM (SELECT clock_timestamp() AS now,
                 (SELECT min(next_run_at) FROM pgsched.jobs
                  WHERE NOT paused AND next_run_at >= to_timestamp(%(since_s)s::float8)
                    AND id <> ALL (%(aside)s::text::bigint[])) AS at) c
)
SELECT j.id, (SELECT now FROM clock) AS now,
    CASE WHEN j.decided_until <> '-infinity' THEN greatest(j.decided_until, j.starts_at - interval '1 microsecond')
         WHEN j.schedule IS NOT NULL THEN j.anchor_at END AS mark,
    CASE WHEN j.schedule ~* '@(every|after)' THEN j.anchor_at END AS anchor,
    j.on_excluded <> 'skip' OR j.shifts IS NOT NULL OR EXISTS (SELECT FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS dated,
    ROW(j.schedule, j.timezone, j.run_at, j.ends_at, j.max_runs, CASE WHEN j.max_runs IS NOT NULL THEN j.run_count END,
        j.jitter, j.overlap, j.max_buffer, j.retry_within, j.misfire_after, j.catch_up, j.max_catch_up,
        j.catch_up_window, j.start_deadline, j.calendar, nullif(j.mode, 'run'))::text AS shape
FROM pgsched.jobs j
-- a sub-select and no join: only so is it where the scan of the index ends, and what is not due is not read
WHERE NOT j.paused AND j.next_run_at <= (SELECT now FROM clock)
  AND j.next_run_at >= to_timestamp(%(since_s)s::float8) AND j.id <> ALL (%(aside)s::text::bigint[])
ORDER BY j.next_run_at
LIMIT %(n)s
FOR NO KEY UPDATE OF j SKIP LOCKED


-- name: tick_extend
-- extend the row of an excluded stretch that continues from the previous batch, instead of inserting a new one. If the
-- stretch is decided again (the row covers it already), the row stays as it is. A locked row is not extended: the rest
-- of the stretch gets a row of its own.
-- params: parallel arrays job_ids bigint[], slots timestamptz[], reasons text[], covers_untils timestamptz[],
--         covers_counts bigint[], extends timestamptz[] (the mark from which the stretch continues)
-- returns: (job_id, slot) of the stretches that need no row of their own
-- locks: the extended rows; never waits
WITH given AS MATERIALIZED (
    SELECT s.*, r.id, r.covers_until AS so_far
    FROM unnest(%(job_ids)s::bigint[], %(slots)s::timestamptz[], %(reasons)s::text[],
                %(covers_untils)s::timestamptz[], %(covers_counts)s::bigint[], %(extends)s::timestamptz[])
        AS s(job_id, slot, reason, covers_until, covers_count, extend)
    CROSS JOIN LATERAL (
        SELECT r.id, r.state, r.reason, r.covers_until FROM pgsched.runs r
        WHERE r.job_id = s.job_id AND r.scheduled_at < s.slot AND r.origin = 'schedule'
        ORDER BY r.scheduled_at DESC LIMIT 1
    ) r
    WHERE r.state = 'skipped' AND r.reason = s.reason AND r.covers_until >= s.extend
), free AS MATERIALIZED (
    SELECT r.id FROM given g JOIN pgsched.runs r ON r.id = g.id FOR NO KEY UPDATE OF r SKIP LOCKED
), grown AS (
    UPDATE pgsched.runs r SET covers_until = g.covers_until, covers_count = r.covers_count + g.covers_count
    FROM given g JOIN free USING (id) WHERE r.id = g.id AND r.covers_until = g.extend
    RETURNING r.id
)
SELECT g.job_id, g.slot FROM given g LEFT JOIN grown ON grown.id = g.id
WHERE grown.id IS NOT NULL OR g.so_far >= g.covers_until


-- name: tick_finished
-- return when the last run of a job ended, for @after. Only the newest 100 rows of the job are read, not its whole
-- history. Of an older run that was revived, it only matters that it is unfinished.
-- params: job_ids bigint[]
-- returns: (job_id, last_finished_at)
-- locks: none
SELECT s.job_id, (
    SELECT max(r.finished_at) FROM (
        SELECT finished_at FROM pgsched.runs WHERE job_id = s.job_id ORDER BY scheduled_at DESC LIMIT 100
    ) r) AS last_finished_at
FROM unnest(%(job_ids)s::bigint[]) AS s(job_id)


-- name: tick_insert
-- insert the rows of the decided slots, with each job's policies copied into its runs.
-- params: parallel arrays, one element for a slot that many jobs may share: job_ids text[] (each an array literal),
--         slots timestamptz[], states text[], available_ats timestamptz[] (null: at its slot), expires_ats
--         timestamptz[], reasons text[], covers_froms timestamptz[], covers_untils timestamptz[], covers_counts
--         bigint[], held_untils timestamptz[], interval_starts timestamptz[] (the slot before), nominal_ats timestamptz[]
--         (where the schedule has a slot that a calendar has shifted) (an array that is too short continues with nulls)
-- returns: (made bigint: how many rows are new). If one slot already has a row, all are refused
-- The constraint on (job_id, scheduled_at) refuses them. With ON CONFLICT, each slot would be looked up and each row
-- inserted speculatively, a tenth of the cost (docs/adr/0009). `guard` has ON CONFLICT and inserts nothing. So the
-- statement is refused as a whole where there is no such constraint.
-- The trigger that checks and announces each new row takes a third of the time of the insert. If it would find nothing
-- (a Python task without limits that takes most defaults), this statement finds that out, and notifies the workers once
-- for all those rows. It notifies directly instead of by pgsched.tell_workers, which leaves the notification to others
-- where they overlap. A worker that they wake looks again only for some milliseconds, and this transaction may take
-- longer.
-- locks: none except the new rows
WITH guard AS (
    INSERT INTO pgsched.runs (task) SELECT 'none' WHERE false
    ON CONFLICT (job_id, scheduled_at) WHERE job_id IS NOT NULL DO NOTHING
), made AS (
    INSERT INTO pgsched.runs (job_id, scheduled_at, available_at, state, finished_at, expires_at, held_until, reason, covers_from,
        covers_until, covers_count, queue, priority, kind, task, args, origin, owner, max_attempts, timeout, kill_after,
        backoff, backoff_base, backoff_max, backoff_jitter, options, tags, slot_zone, concurrency_key, checked, interval_start,
        nominal_at)
    SELECT j.id, s.slot,
        -- a batch that is prepared ahead of its instant is claimable when it commits, not scheduled for later
        CASE WHEN j.after_jobs <> '{}' AND s.state IN ('queued', 'waiting') THEN '8998-01-01 00:00Z'
             WHEN s.state = 'queued' THEN least(s.starts, (SELECT clock_timestamp())) ELSE s.starts END,
        CASE WHEN j.after_jobs <> '{}' AND s.state = 'queued' THEN 'waiting' ELSE s.state END,
        CASE WHEN s.state IN ('skipped', 'missed') THEN clock_timestamp() END, s.expires_at, s.held_until, s.reason,
        s.covers_from, s.covers_until, s.covers_count,
        coalesce(j.queue, h.queue), coalesce(j.priority, h.priority), j.kind, j.task, j.args, 'schedule', j.owner,
        coalesce(j.max_attempts, h.max_attempts),
        j.timeout, j.kill_after, j.backoff, j.backoff_base, j.backoff_max, j.backoff_jitter,
        -- null for other kinds without ping_url. The job is read again here: a whole-row reference to j would copy every job
        CASE WHEN j.after_jobs <> '{}' AND s.state IN ('queued', 'waiting')
             THEN (SELECT pgsched.held_options(o, s.starts, s.state = 'waiting') FROM pgsched.jobs o WHERE o.id = j.id)
             WHEN j.kind IN ('command', 'shell') OR j.ping_url IS NOT NULL
             THEN (SELECT pgsched.job_options(o) FROM pgsched.jobs o WHERE o.id = j.id) END, j.tags,
        nullif(j.timezone, 'UTC'),
        CASE WHEN j.concurrency_key IS NOT NULL OR j.concurrency_limit IS NOT NULL
            THEN pgsched.run_key(j.id, j.concurrency_key, j.concurrency_limit, j.args) END,
        CASE WHEN s.state = 'queued' AND j.kind = 'task' AND h.queue IS NOT NULL AND coalesce(j.after_jobs, '{}') = '{}'
                AND j.concurrency_key IS NULL AND j.concurrency_limit IS NULL
                AND num_nonnulls(j.kill_after, j.backoff, j.backoff_base, j.backoff_max, j.backoff_jitter) = 0
                AND coalesce(octet_length(array_to_json(j.tags)::text), 0) <= 65536  -- run_size_error
                AND s.slot >= '1970-01-01 00:00Z' AND coalesce(s.expires_at, s.slot) <= '9000-01-01 00:00Z'
            THEN pgsched.is_plain(j.task, j.args, coalesce(j.queue, h.queue), coalesce(j.priority, h.priority),
                coalesce(j.max_attempts, h.max_attempts), j.timeout) END,
        s.interval_start, s.nominal_at
    FROM (SELECT u.*, coalesce(u.available_at, u.slot) AS starts
          FROM unnest(%(job_ids)s::text[], %(slots)s::timestamptz[], %(states)s::text[], %(available_ats)s::timestamptz[],
                %(expires_ats)s::timestamptz[], %(reasons)s::text[], %(covers_froms)s::timestamptz[],
                %(covers_untils)s::timestamptz[], %(covers_counts)s::bigint[], %(held_untils)s::timestamptz[],
                %(interval_starts)s::timestamptz[], %(nominal_ats)s::timestamptz[])
              AS u(job_ids, slot, state, available_at, expires_at, reason, covers_from, covers_until, covers_count,
                   held_until, interval_start, nominal_at)) s
    CROSS JOIN LATERAL unnest(s.job_ids::bigint[]) AS i(id)
    JOIN pgsched.jobs j ON j.id = i.id
    -- the product's; not where the task may say otherwise: there the trigger decides, and no row is checked here
    LEFT JOIN (VALUES ('default', 5::smallint, 3)) AS h(queue, priority, max_attempts)
        ON NOT (j.kind = 'task' AND pgsched.has_options(j.task))
    RETURNING queue, checked
), told AS (
    SELECT pgsched.notify('pgsched_runs', pgsched.queue_mark(queue)) FROM (SELECT DISTINCT queue FROM made WHERE checked) q
    WHERE pgsched.may_be_asleep()
)
-- the count is there for its CTE: one that only selects is not run at all where nothing asks for its rows
SELECT (SELECT count(*) FROM made) AS made, (SELECT count(*) FROM told) AS notified


-- name: tick_known
-- return the rows that jobs already have for slots in these stretches.
-- params: parallel arrays job_ids bigint[], firsts timestamptz[], lasts timestamptz[]
-- returns: (job_id, first, last): the slots that such a row stands for; its own slot is always among them
-- locks: none
SELECT s.job_id, k.first, k.last
FROM unnest(%(job_ids)s::bigint[], %(firsts)s::timestamptz[], %(lasts)s::timestamptz[]) AS s(job_id, first, last)
JOIN pgsched.runs r ON r.job_id = s.job_id AND r.scheduled_at BETWEEN s.first AND s.last
CROSS JOIN LATERAL (VALUES (coalesce(r.covers_from, r.scheduled_at), coalesce(r.covers_until, r.scheduled_at)),
                           (r.scheduled_at, r.scheduled_at)) AS k(first, last)


-- name: tick_open
-- count the unfinished runs of jobs that tick_due has locked. This is a statement of its own, so that it sees what
-- pgsched.trigger committed under the lock before. Backfills do not count, nor runs that were retried and wait for other
-- runs again: nobody knows how long.
-- params: job_ids bigint[]
-- returns: (job_id, open, held, in_turn, retried, newest) of the jobs that have any. held: runs that a policy keeps
--          waiting, not those that wait only for limits. in_turn: late slots that are caught up one after another, which
--          do not count as held. retried: how many of the open ones were retried
-- locks: none
SELECT r.job_id, count(*) AS open, count(r.reruns) AS retried,
    count(*) FILTER (WHERE r.state = 'waiting' AND r.ready_at IS NULL AND NOT pgsched.waits_in_turn(r.reason)) AS held,
    count(*) FILTER (WHERE r.state = 'waiting' AND pgsched.waits_in_turn(r.reason)) AS in_turn, max(r.id) AS newest
FROM pgsched.runs r
WHERE r.job_id = ANY(%(job_ids)s::bigint[]) AND r.phase < 3 /* open */ AND r.origin <> 'backfill'
  AND (r.reruns IS NULL OR r.phase > 0 OR r.ready_at IS NOT NULL)
GROUP BY r.job_id


-- name: tick_replace
-- end the open runs of jobs whose new slot replaces them. Waiting and queued ones end at once. Running ones are asked
-- to stop (replace), or lose their claim, which fences the former owner (terminate). If a handler has locked its claim
-- by assert_claim, the run is asked to stop instead, because waiting for the handler's transaction would delay every
-- other job. Waiting for a run that another transaction has locked would too. So no run of that job is ended, and its
-- slots are decided later.
-- params: parallel arrays job_ids bigint[], terminates boolean[]
-- returns: job_id of the jobs that have to wait; one row of null if there are none
-- locks: FOR NO KEY UPDATE on those runs, FOR UPDATE on those whose claim is taken away; never waits
WITH open AS MATERIALIZED (
    SELECT r.id, r.job_id, s.terminate
    FROM unnest(%(job_ids)s::bigint[], %(terminates)s::boolean[]) AS s(job_id, terminate)
    CROSS JOIN LATERAL (  -- each job looked up in the index, whatever the statistics say
        SELECT id, job_id FROM pgsched.runs o WHERE o.job_id = s.job_id AND o.phase < 3 /* open */
            AND o.origin <> 'backfill' AND (o.reruns IS NULL OR o.phase > 0 OR o.ready_at IS NOT NULL) OFFSET 0) r
), locked AS MATERIALIZED (
    SELECT r.id, r.state, r.token, r.attempt, r.started_at, r.worker_id
    FROM open JOIN pgsched.runs r ON r.id = open.id
    WHERE r.phase < 3 /* open */
    FOR NO KEY UPDATE OF r SKIP LOCKED
), busy AS MATERIALIZED (
    SELECT DISTINCT job_id FROM open WHERE id NOT IN (SELECT id FROM locked)
), old AS MATERIALIZED (
    SELECT locked.*, open.terminate FROM locked JOIN open USING (id) WHERE job_id NOT IN (SELECT job_id FROM busy)
), taken AS MATERIALIZED (
    SELECT r.id FROM old JOIN pgsched.runs r ON r.id = old.id WHERE old.state = 'running' AND old.terminate
    FOR UPDATE OF r SKIP LOCKED
), ended AS (
    UPDATE pgsched.runs r SET
        state = CASE WHEN old.state = 'running' AND taken.id IS NULL THEN 'running' ELSE 'cancelled' END,
        finished_at = CASE WHEN old.state = 'running' AND taken.id IS NULL THEN NULL ELSE clock_timestamp() END,
        token = CASE WHEN old.state = 'running' AND taken.id IS NULL THEN r.token END,
        cancel_requested_at = coalesce(r.cancel_requested_at, clock_timestamp()),
        cancel_reason = 'overlap: replaced by the next slot', reason = 'overlap: replaced by the next slot'
    FROM old LEFT JOIN taken ON taken.id = old.id WHERE r.id = old.id
), evidence AS (
    INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, started_at, worker_id, worker, error)
    SELECT id, token, attempt, 'cancelled', started_at, worker_id,
        (SELECT name FROM pgsched.workers w WHERE w.id = worker_id), 'overlap: terminated by the next slot'
    FROM old JOIN taken USING (id)
    ON CONFLICT (run_id, token) DO NOTHING
), woken AS (
    SELECT pgsched.notify('pgsched_cancel', '') FROM old WHERE state = 'running'
)
-- woken comes first: a CTE that only selects is not run at all where nothing asks for its rows
SELECT busy.job_id, told.notified FROM (SELECT count(*) AS notified FROM woken) told LEFT JOIN busy ON true


-- name: tick_terms
-- return the schedules and policies of these jobs in full.
-- params: job_ids bigint[] (locked by tick_due)
-- returns: one row per job; `excluded`: the rows of its calendar (from_date, until_date, reason) that may still matter
--          in any time zone. Dates more than a year ahead are left out until they are due, because each tick would
--          otherwise read all dates until the end of time. A range is left out too if ranges that begin earlier have
--          all its dates. Of a job whose slots are shifted all are returned: a slot may lie before its nominal instant
-- locks: none
SELECT j.id, j.schedule, j.timezone, j.anchor_at, j.run_at, j.starts_at, j.ends_at, j.max_runs, j.run_count, j.jitter,
    j.overlap, j.max_buffer, j.misfire_after, j.catch_up, j.max_catch_up, j.catch_up_window, j.start_deadline,
    j.retry_within, j.mode, j.calendar, j.on_excluded, j.shifts,
    -- asked first, for next to no job has any
    CASE WHEN (SELECT true FROM pgsched.job_calendars d WHERE d.job_id = j.id LIMIT 1) THEN (
        SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason)) FROM (
            SELECT d.*, max(d.until_date) OVER (
                ORDER BY d.from_date ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS so_far
            FROM pgsched.job_calendars d
            WHERE d.job_id = j.id AND (j.on_excluded <> 'skip' OR j.shifts IS NOT NULL
                OR d.until_date >= (j.decided_until - interval '2 days')::date
                AND d.from_date <= (clock_timestamp() + interval '1 year')::date)) c
        WHERE coalesce(c.so_far < c.until_date AND (c.so_far <= (clock_timestamp() + interval '1 year')::date
                                                    OR j.on_excluded <> 'skip' OR j.shifts IS NOT NULL), true)
    ) END AS excluded
FROM pgsched.jobs j
WHERE j.id = ANY(%(job_ids)s::bigint[])


-- name: tick_wait
-- keep a batch that was prepared ahead of its time from committing earlier, and find out whether it was in time.
-- params: at timestamptz
-- returns: (wait_s float8) seconds until then; negative if it has passed
-- locks: none
SELECT extract(epoch FROM %(at)s::timestamptz - clock_timestamp())::float8 AS wait_s
