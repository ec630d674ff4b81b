-- The history of slots, for `explain` and for `shadow report`.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: explain_near
-- return the rows of a job next to a time, for jobs whose schedule cannot give its slots (@after, deleted).
-- params: job_id bigint, at timestamptz (null: the newest)
-- returns: scheduled_at of at most two rows: the last one up to that time, and the first one after it; and, for a job
--          that runs once, the slots that it had before an edit and whose rows are still to be made
-- locks: none
(SELECT scheduled_at FROM pgsched.runs
 WHERE job_id = %(job_id)s AND scheduled_at <= coalesce(%(at)s::timestamptz, clock_timestamp())
 ORDER BY scheduled_at DESC LIMIT 1)
UNION ALL
(SELECT scheduled_at FROM pgsched.runs WHERE job_id = %(job_id)s AND scheduled_at > %(at)s::timestamptz
 ORDER BY scheduled_at LIMIT 1)
UNION ALL
(SELECT until_at FROM pgsched.passed_over WHERE job_id = %(job_id)s AND schedule IS NULL)


-- name: explain_open
-- return the open runs of a job that a run waits for: older ones, and those that are not waiting themselves.
-- params: id bigint
-- returns: (id, state, scheduled_at)
-- locks: none
SELECT o.id, o.state, o.scheduled_at FROM pgsched.runs w JOIN pgsched.runs o ON o.job_id = w.job_id
    AND o.phase < 3 /* open */
WHERE w.id = %(id)s AND o.id <> w.id AND o.origin <> 'backfill'
  AND (o.state <> 'waiting' OR (o.scheduled_at, o.id) < (w.scheduled_at, w.id))
ORDER BY o.scheduled_at, o.id LIMIT 100


-- name: explain_parents
-- return what a run still waits for: runs, or jobs whose slot is not decided yet.
-- params: id bigint
-- returns: (id: of the run, or null; state; job: its name, or the name of the job that is waited for; match: which of
--          that job's slots, as jobs.after_match, null: the same)
-- locks: none
SELECT p.id, p.state, j.name AS job, NULL AS match FROM pgsched.dependencies d JOIN pgsched.runs p ON p.id = d.parent_id
LEFT JOIN pgsched.jobs j ON j.id = p.job_id
WHERE d.run_id = %(id)s AND d.state = 'open'
UNION ALL
SELECT NULL, NULL, coalesce(j.name, 'job ' || a.job_id), r.options ->> 'after_match'
FROM pgsched.runs r CROSS JOIN LATERAL pgsched.after_jobs_of(r.options) AS a(job_id)
LEFT JOIN pgsched.jobs j ON j.id = a.job_id
WHERE r.id = %(id)s AND r.available_at = '8998-01-01 00:00Z'
  AND (r.options ? 'after_match'
       OR NOT EXISTS (SELECT FROM pgsched.runs o WHERE o.job_id = j.id AND o.scheduled_at = r.scheduled_at))
ORDER BY 1 NULLS LAST, 3 LIMIT 100


-- name: explain_passed_over
-- return the stretch that was passed over and that the leader has not recorded yet, if it contains this slot.
-- params: job_id bigint, slot timestamptz
-- returns: (state, reason), or no row
-- locks: none
SELECT state, reason FROM pgsched.passed_over
WHERE job_id = %(job_id)s AND after_at < %(slot)s AND until_at >= %(slot)s ORDER BY id LIMIT 1


-- name: explain_row
-- return the run that a job has at a time, compared in whole seconds.
-- params: job_id bigint, at timestamptz
-- returns: scheduled_at of the first such row
-- locks: none
SELECT scheduled_at FROM pgsched.runs
WHERE job_id = %(job_id)s AND scheduled_at >= %(at)s AND scheduled_at < %(at)s + CASE
    WHEN date_trunc('second', %(at)s::timestamptz) = %(at)s THEN interval '1 second' ELSE interval '1 microsecond' END
ORDER BY scheduled_at LIMIT 1


-- name: explain_terms
-- return the terms of leaders that reach past a time.
-- params: since timestamptz
-- returns: (term, holder, elected_at, seen_at, resigned_at); seen_at of a live term is now
-- locks: none
SELECT term, holder, elected_at, resigned_at,
    CASE WHEN resigned_at IS NULL AND seen_at > clock_timestamp() - interval '5 seconds'
         THEN clock_timestamp() ELSE seen_at END AS seen_at
FROM pgsched.leader WHERE coalesce(resigned_at, seen_at) >= %(since)s ORDER BY term


-- name: shadow_jobs
-- return the jobs whose slots are compared with another scheduler's log.
-- params: names text[] (null: those in mode shadow), n int
-- returns: (id, name, kind, task, args, schedule, timezone, anchor_at, created_at, jitter, known_until: all slots until then are decided, null: none is;
--          excluded: its own dates (from_date, until_date, reason), null without any; calendar, on_excluded, shifts)
-- locks: none
SELECT j.id, j.name, j.kind, j.task, j.args, j.schedule, j.timezone, j.anchor_at, j.created_at, j.jitter, j.calendar, j.on_excluded, j.shifts,
    CASE WHEN j.next_run_at > clock_timestamp() AND NOT j.paused THEN clock_timestamp()
         ELSE nullif(j.decided_until, '-infinity') END AS known_until,
    (SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason) ORDER BY c.from_date)
     FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS excluded
FROM pgsched.jobs j
WHERE CASE WHEN %(names)s::text[] IS NULL THEN j.mode = 'shadow' ELSE j.name = ANY (%(names)s::text[]) END
ORDER BY j.name LIMIT %(n)s


-- name: shadow_slots
-- return the decided slots of a job that ran, or would have run but for the mode shadow.
-- params: job_id bigint, after timestamptz (slots behind this), until timestamptz, n int
-- returns: (scheduled_at, covers_from, covers_until: the slots that the row stands for, null: its own, would_miss: catch-up would not have run
--          them), by scheduled_at
-- locks: none
SELECT r.scheduled_at, r.covers_from, r.covers_until, coalesce(starts_with(r.reason, 'shadow: '), false) AS would_miss
FROM pgsched.runs r
WHERE r.job_id = %(job_id)s AND r.scheduled_at > %(after)s AND r.scheduled_at <= %(until)s AND r.origin = 'schedule'
  AND (r.state NOT IN ('skipped', 'missed') OR r.state = 'skipped' AND starts_with(r.reason, 'shadow'))
ORDER BY r.scheduled_at LIMIT %(n)s
