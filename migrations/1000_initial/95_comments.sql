-- What \d+ and \df+ say of the tables, columns and functions that docs/sql.md lets other programs use, and in one line of
-- every other table. A test holds that none is forgotten (tests/integration/db/schema/test_comments.py).

COMMENT ON SCHEMA pgsched IS 'pgsched: scheduler and work queue. What other programs may use: docs/sql.md.';

-- ---- jobs

COMMENT ON TABLE pgsched.jobs IS 'What runs, and when. INSERT, UPDATE and DELETE rows; docs/jobs.md has every column.';
COMMENT ON COLUMN pgsched.jobs.id IS 'Given by the database.';
COMMENT ON COLUMN pgsched.jobs.name IS 'Unique; 1 to 200 characters.';
COMMENT ON COLUMN pgsched.jobs.description IS 'For people.';
COMMENT ON COLUMN pgsched.jobs.kind IS 'How task is read: the name of a registered task, a program (command), a command line (shell), statements (sql) or a URL (http).';
COMMENT ON COLUMN pgsched.jobs.task IS 'The name, program, command line, statements or URL.';
COMMENT ON COLUMN pgsched.jobs.args IS 'Arguments: a JSON object or array, at most 1 MiB.';
COMMENT ON COLUMN pgsched.jobs.queue IS 'The queue that its runs stand in.';
COMMENT ON COLUMN pgsched.jobs.priority IS '0 to 9; lower goes first within a queue.';
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
COMMENT ON COLUMN pgsched.jobs.max_attempts IS '1 to 1000; then the run is dead.';
COMMENT ON COLUMN pgsched.jobs.timeout IS 'An attempt is stopped after this long.';
COMMENT ON COLUMN pgsched.jobs.kill_after IS 'An attempt that was told to stop is killed after this long.';
COMMENT ON COLUMN pgsched.jobs.backoff IS 'How the pause before the next attempt grows: exponential, linear, fixed.';
COMMENT ON COLUMN pgsched.jobs.backoff_base IS 'The first pause.';
COMMENT ON COLUMN pgsched.jobs.backoff_max IS 'The longest pause.';
COMMENT ON COLUMN pgsched.jobs.backoff_jitter IS 'Each pause is shortened by up to this share of it.';
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

COMMENT ON TABLE pgsched.job_calendars IS 'Dates on which a job does not run, in the job''s time zone. INSERT, UPDATE and DELETE rows.';
COMMENT ON COLUMN pgsched.job_calendars.job_id IS 'The job.';
COMMENT ON COLUMN pgsched.job_calendars.from_date IS 'The first excluded date.';
COMMENT ON COLUMN pgsched.job_calendars.until_date IS 'The last excluded date; default: from_date.';
COMMENT ON COLUMN pgsched.job_calendars.reason IS 'Why: the reason of the slots that are skipped.';

-- ---- runs

COMMENT ON TABLE pgsched.runs IS 'One row for each run. Made by pgsched.enqueue, by INSERT or for a slot of a job; do not UPDATE or DELETE.';
COMMENT ON COLUMN pgsched.runs.id IS 'Given by the database.';
COMMENT ON COLUMN pgsched.runs.job_id IS 'The job that it is of; NULL: it was enqueued.';
COMMENT ON COLUMN pgsched.runs.scheduled_at IS 'The slot of the job.';
COMMENT ON COLUMN pgsched.runs.available_at IS 'It does not start before this instant.';
COMMENT ON COLUMN pgsched.runs.created_at IS 'When it was made.';
COMMENT ON COLUMN pgsched.runs.started_at IS 'When its last attempt started.';
COMMENT ON COLUMN pgsched.runs.finished_at IS 'When it ended; NULL: it has not.';
COMMENT ON COLUMN pgsched.runs.attempt IS 'How many attempts have started.';
COMMENT ON COLUMN pgsched.runs.max_attempts IS 'After so many it is dead.';
COMMENT ON COLUMN pgsched.runs.priority IS '0 to 9; lower goes first within a queue.';
COMMENT ON COLUMN pgsched.runs.state IS 'waiting, scheduled, queued, running; ended: succeeded, dead, cancelled, skipped, missed.';
COMMENT ON COLUMN pgsched.runs.queue IS 'The queue that it stands in.';
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

COMMENT ON TABLE pgsched.run_logs IS 'What runs printed: order by run_id, attempt, seq. Read only.';
COMMENT ON COLUMN pgsched.run_logs.run_id IS 'The run.';
COMMENT ON COLUMN pgsched.run_logs.attempt IS 'The attempt.';
COMMENT ON COLUMN pgsched.run_logs.seq IS 'The place of the chunk.';
COMMENT ON COLUMN pgsched.run_logs.at IS 'When it was written.';
COMMENT ON COLUMN pgsched.run_logs.stream IS 'stdout, stderr, log, or cut: how much is left out at this place.';
COMMENT ON COLUMN pgsched.run_logs.chunk IS 'The text.';

COMMENT ON TABLE pgsched.dependencies IS 'run_id waits for parent_id. INSERT rows before the run has started; DELETE takes one back.';
COMMENT ON COLUMN pgsched.dependencies.run_id IS 'The run that waits.';
COMMENT ON COLUMN pgsched.dependencies.parent_id IS 'The run that it waits for.';
COMMENT ON COLUMN pgsched.dependencies.on_failure IS 'What happens if the parent does not succeed: cancel, run_anyway, wait.';
COMMENT ON COLUMN pgsched.dependencies.any_of IS 'Of all edges of a run that say so, one has to be met; every other has to be.';

-- ---- limits and retention

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

COMMENT ON TABLE pgsched.limits IS 'Limits of concurrency keys: of the key with this name, and of each key that begins with it and a colon.';
COMMENT ON COLUMN pgsched.limits.name IS 'The key, or what its keys have before their first colon.';
COMMENT ON COLUMN pgsched.limits.concurrency IS 'So many runs of a key at once.';
COMMENT ON COLUMN pgsched.limits.rate IS 'So many starts of a key in each rate_period.';
COMMENT ON COLUMN pgsched.limits.rate_period IS '1 millisecond to 31 days.';
COMMENT ON COLUMN pgsched.limits.rate_burst IS 'So many at once after a quiet time.';
COMMENT ON COLUMN pgsched.limits.ordered IS 'Runs of a key start in the order in which they came.';
COMMENT ON COLUMN pgsched.limits.weight IS 'The share of a key in a fair queue.';

COMMENT ON TABLE pgsched.pauses IS 'What must not start: everything, a queue or a task. INSERT pauses, DELETE resumes.';
COMMENT ON COLUMN pgsched.pauses.what IS 'all, queue or task (limit is the database''s own).';
COMMENT ON COLUMN pgsched.pauses.name IS 'The queue or task; empty for all.';
COMMENT ON COLUMN pgsched.pauses.paused_at IS 'Since when.';
COMMENT ON COLUMN pgsched.pauses.paused_by IS 'By whom.';
COMMENT ON COLUMN pgsched.pauses.reason IS 'Why.';
COMMENT ON COLUMN pgsched.pauses.resume_at IS 'When the pause ends by itself.';

COMMENT ON TABLE pgsched.retention IS 'How long things are kept where neither job nor queue says so. One row: UPDATE it.';
COMMENT ON COLUMN pgsched.retention.keep IS 'Ended runs, by outcome, as in jobs.keep.';
COMMENT ON COLUMN pgsched.retention.archive IS 'Runs that go are put into archived_runs.';
COMMENT ON COLUMN pgsched.retention.keep_minutes IS 'Figures by the minute.';
COMMENT ON COLUMN pgsched.retention.keep_hours IS 'Figures by the hour.';
COMMENT ON COLUMN pgsched.retention.keep_audit IS 'Who changed what.';

-- ---- figures, archives, alerts, audit

COMMENT ON TABLE pgsched.rollups IS 'How many runs ended and how long they took, by minute and hour: docs/retention.md. Read only.';
COMMENT ON TABLE pgsched.archived_runs IS 'Pruned runs, if retention.archive is set. Nothing in pgsched reads it: move or empty it as you like.';
COMMENT ON TABLE pgsched.alerts IS 'One row for each incident: docs/alerts.md. Read only.';
COMMENT ON COLUMN pgsched.alerts.id IS 'Given by the database.';
COMMENT ON COLUMN pgsched.alerts.job IS 'The job''s name; NULL: the whole system.';
COMMENT ON COLUMN pgsched.alerts.kind IS 'failures, lateness, duration, silence, no_leader or test.';
COMMENT ON COLUMN pgsched.alerts.opened_at IS 'Since when.';
COMMENT ON COLUMN pgsched.alerts.closed_at IS 'Until when; NULL: it is open.';
COMMENT ON COLUMN pgsched.alerts.details IS 'What was found.';
COMMENT ON COLUMN pgsched.alerts.run_id IS 'The run that gave rise to it.';
COMMENT ON COLUMN pgsched.alerts.recovery IS 'Why it was closed.';
COMMENT ON TABLE pgsched.audit IS 'Who changed a job, run, backfill, queue, limit, pause or retention, and when. Read only.';
COMMENT ON COLUMN pgsched.audit.at IS 'When.';
COMMENT ON COLUMN pgsched.audit.who IS 'The login.';
COMMENT ON COLUMN pgsched.audit.action IS 'What was done.';
COMMENT ON COLUMN pgsched.audit.what IS 'To what kind of thing.';
COMMENT ON COLUMN pgsched.audit.name IS 'Which one.';
COMMENT ON COLUMN pgsched.audit.change IS 'Of an edit {column: [before, after]}, else what was made, taken away or asked for.';

-- ---- pgsched's own

COMMENT ON TABLE pgsched.passed_over IS 'pgsched''s own: slots that an edit passed over, until the leader records them.';
COMMENT ON TABLE pgsched.backfills IS 'pgsched''s own: made by pgsched.backfill, and worked on by the leader.';
COMMENT ON TABLE pgsched.backward_edges IS 'pgsched''s own: one row that whoever makes an edge to a later run writes.';
COMMENT ON TABLE pgsched.kept_keys IS 'pgsched''s own: keys that outlive the run they stand for.';
COMMENT ON TABLE pgsched.workers IS 'pgsched''s own: the workers there are and were lately.';
COMMENT ON TABLE pgsched.leader IS 'pgsched''s own: one row a term; the newest leads.';
COMMENT ON TABLE pgsched.buckets IS 'pgsched''s own: what rate limits have left.';
COMMENT ON TABLE pgsched.refunds IS 'pgsched''s own: starts that a rate limit gets back.';
COMMENT ON TABLE pgsched.rollup_mark IS 'pgsched''s own: up to when ended runs are counted.';
COMMENT ON TABLE pgsched.alert_deliveries IS 'pgsched''s own: who has been told of an alert.';
COMMENT ON SEQUENCE pgsched.gated_queues IS 'pgsched''s own: a bit for each queue that has settings; made anew by rebuild_flags().';
COMMENT ON SEQUENCE pgsched.asleep_until IS 'pgsched''s own: until when a worker may be asleep (ms since 1970); made anew by rebuild_flags().';
COMMENT ON SEQUENCE pgsched.told_at IS 'pgsched''s own: when workers were last notified (ms since 1970); believed for 20 ms.';

-- ---- functions for any language

COMMENT ON FUNCTION pgsched.enqueue IS 'Makes a run; returns its id, or that of the run which has the key already. Call it with named arguments: docs/enqueue.md.';
COMMENT ON FUNCTION pgsched.enqueue_result IS 'As enqueue; returns id and how: created, existing, replaced, repeated, rejected.';
COMMENT ON FUNCTION pgsched.first_result IS 'The run that the first enqueue with this idempotency key made, and what became of it; no row: unknown or expired.';
COMMENT ON FUNCTION pgsched.cancel IS 'Cancels a run. Returns cancelled, requested (its worker was asked), the state in which it had ended, or NULL: no such run.';
COMMENT ON FUNCTION pgsched.retry IS 'Revives a run that ended and did not succeed. Returns its state now, or NULL: no such run.';
COMMENT ON FUNCTION pgsched.retry_now IS 'As retry, without waiting again for the runs that it waited for.';
COMMENT ON FUNCTION pgsched.trigger IS 'Runs a job now, beside its schedule. Returns the run''s id.';
COMMENT ON FUNCTION pgsched.backfill IS 'Runs the slots of a job in [from_at, to_at) once more. Returns the backfill''s id: docs/jobs.md.';
COMMENT ON FUNCTION pgsched.cancel_backfill IS 'Ends a backfill. Returns cancelled, finished (it was over), or NULL: no such backfill.';
COMMENT ON FUNCTION pgsched.assert_claim IS 'Fails with 55000 if the attempt no longer owns its run; else holds ownership until the transaction ends.';
