-- Indexes. Almost all are partial, so that only the rows which need one pay for it. Their predicates name the phase of a
-- run and never its state (11_run_tables.sql).

-- ---- jobs

-- The ticker's only question: which jobs are due? Paused and broken jobs are not in the index at all.
CREATE INDEX jobs_due ON pgsched.jobs (next_run_at) WHERE NOT paused AND next_run_at IS NOT NULL;
-- Jobs in error, which a new leader looks at (tick_again in sql/ticks.sql): found without reading all jobs.
CREATE INDEX jobs_in_error ON pgsched.jobs (id) WHERE error IS NOT NULL;
-- One-off jobs that go once their run has succeeded (prune_jobs in sql/retention.sql).
CREATE INDEX jobs_done_once ON pgsched.jobs (id) WHERE delete_after_run AND schedule IS NULL AND next_run_at IS NULL;
-- The jobs that code declares.
CREATE INDEX jobs_declared ON pgsched.jobs (declared_by) WHERE declared_by IS NOT NULL;
CREATE INDEX jobs_keep ON pgsched.jobs (id) WHERE keep IS NOT NULL;
CREATE INDEX jobs_watched ON pgsched.jobs (id) WHERE alert_after_failures IS NOT NULL OR max_lateness IS NOT NULL
    OR max_duration IS NOT NULL OR expect_every IS NOT NULL;
CREATE INDEX backfills_open ON pgsched.backfills (id) WHERE finished_at IS NULL;

-- ---- runs

-- One run for each slot, and one unfinished run for each unique key.
CREATE UNIQUE INDEX runs_slot ON pgsched.runs (job_id, scheduled_at) WHERE job_id IS NOT NULL;
CREATE UNIQUE INDEX runs_unique_key ON pgsched.runs (unique_key) WHERE unique_key IS NOT NULL AND phase < 3 /* open */;
-- What is to be claimed; what becomes due; what something else than limits holds.
CREATE INDEX runs_claim ON pgsched.runs (queue, priority, available_at, id) WHERE phase = 2 /* claimable */;
CREATE INDEX runs_scheduled ON pgsched.runs (available_at, id) WHERE phase = 1 /* scheduled */;
CREATE INDEX runs_waiting ON pgsched.runs (available_at, id) WHERE phase = 0 /* waiting */ AND ready_at IS NULL;
-- The oldest held run of each job is found by one probe a job, however many of them are held.
CREATE INDEX runs_waiting_of_job ON pgsched.runs (job_id, scheduled_at, id) WHERE phase = 0 /* waiting */ AND ready_at IS NULL;
-- What waits for limits alone, by queue and key in the order of admission. There may be a million of them.
CREATE INDEX runs_ready ON pgsched.runs (queue, coalesce(concurrency_key, ''), priority, ready_at, id)
    WHERE ready_at IS NOT NULL AND phase = 0 /* waiting */;
-- The same by key in the order of arrival; and what of a key was admitted.
CREATE INDEX runs_of_key ON pgsched.runs (concurrency_key, phase, ready_at, id)
    WHERE concurrency_key IS NOT NULL AND phase < 3 /* open */;
-- Bounds that few runs have: what may no longer start is ended in the round in which it expires.
CREATE INDEX runs_expiring ON pgsched.runs (expires_at) WHERE phase < 3 /* open */ AND expires_at IS NOT NULL;
CREATE INDEX runs_held ON pgsched.runs (held_until) WHERE phase = 0 /* waiting */ AND held_until IS NOT NULL;
CREATE INDEX runs_open_of_job ON pgsched.runs (job_id) WHERE phase < 3 /* open */ AND job_id IS NOT NULL;
CREATE INDEX runs_finished ON pgsched.runs (finished_at) WHERE phase >= 3 /* ended */;
CREATE INDEX runs_attention ON pgsched.runs (finished_at) WHERE phase = 4 /* ended badly */;
-- Which runs a backfill asked for.
CREATE INDEX runs_backfill ON pgsched.runs (backfill_id, phase) WHERE backfill_id IS NOT NULL;
-- Parents that have ended and that the leader has yet to look at.
CREATE INDEX runs_ended_parents ON pgsched.runs (id) WHERE phase >= 3 /* ended */ AND has_children;

-- ---- what belongs to runs

CREATE INDEX dependencies_parent ON pgsched.dependencies (parent_id);
-- Edges to a run that was made later: only these can close a cycle, and there is hardly ever one.
CREATE INDEX dependencies_backward ON pgsched.dependencies (run_id) WHERE parent_id > run_id AND state = 'open';
CREATE INDEX kept_keys_expires_at ON pgsched.kept_keys (expires_at);
-- The keys of a run that goes: what became of it stays with them (prune_delete in sql/retention.sql). The key that it was
-- made by is in its row.
CREATE INDEX kept_keys_met ON pgsched.kept_keys (run_id) WHERE met;

-- ---- workers, limits, figures and alerts

CREATE INDEX workers_alive ON pgsched.workers (id) WHERE stopped_at IS NULL;
-- Few, and asked for in every round of the leader.
CREATE INDEX queues_to_apply ON pgsched.queues (name) WHERE applied_at IS NULL;
CREATE INDEX limits_to_apply ON pgsched.limits (name) WHERE applied_at IS NULL;
CREATE INDEX rollups_of_job ON pgsched.rollups (job_id, from_at) WHERE job_id <> 0;
-- Two leaders, or two workers, cannot both open one.
CREATE UNIQUE INDEX alerts_open ON pgsched.alerts (job_id, kind) WHERE closed_at IS NULL;
CREATE INDEX alerts_of_job ON pgsched.alerts (job_id, id);
CREATE INDEX alerts_closed ON pgsched.alerts (closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX alert_deliveries_due ON pgsched.alert_deliveries (next_at) WHERE delivered_at IS NULL;
CREATE INDEX audit_of ON pgsched.audit (what, name, id);
CREATE INDEX audit_at ON pgsched.audit (at);
