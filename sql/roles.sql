-- roles: least privilege. Makes seven roles. The first one owns everything; the others get what their work needs.
-- params: none. Run by `pgsched migrate --roles`, and again by each later `pgsched migrate`; printed by --roles --sql.
-- returns: nothing
-- locks: ACCESS EXCLUSIVE on all tables of pgsched, until the transaction ends
--
--   pgsched_owner     owns the schema; no login uses it
--   pgsched_worker    claims and settles; may also enqueue, because handlers do
--   pgsched_leader    plans, admits, reaps and prunes
--   pgsched_producer  makes jobs and runs, and sees, edits and cancels its own
--   pgsched_operator  sees everything; edits, pauses, cancels and retries jobs and runs of all owners; sets limits
--   pgsched_viewer    sees everything
--   pgsched_console   for the console: an operator that may name the person for whom it acts (the audit's for_user)
--
-- A login gets one or more of them: GRANT pgsched_worker, pgsched_leader TO app_worker. Roles belong to the whole
-- server. This script sets what they may do in one database.
--
-- All of it runs in one transaction. Its search path has no schema in which other roles may create functions, because
-- such a function would be executed here with every right.

SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL standard_conforming_strings = on;

DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['owner', 'worker', 'leader', 'producer', 'operator', 'viewer', 'console'] LOOP
        IF to_regrole('pgsched_' || role) IS NULL THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', 'pgsched_' || role);
            EXCEPTION
                WHEN duplicate_object OR unique_violation THEN
                    NULL;  -- another database of this cluster has made it meanwhile
                WHEN insufficient_privilege THEN
                    -- this role was added later: the role that migrates need not have CREATEROLE any more
                    IF role <> 'console' OR to_regrole('pgsched_owner') IS NULL THEN
                        RAISE;
                    END IF;
            END;
        END IF;
    END LOOP;
    IF NOT pg_has_role('pgsched_owner', 'USAGE') THEN  -- a superuser has the rights of all
        EXECUTE format('GRANT pgsched_owner TO %I', current_user);
    END IF;
    IF NOT pg_has_role('pgsched_worker', 'pgsched_producer', 'USAGE') THEN
        GRANT pgsched_producer TO pgsched_worker;
    END IF;
    IF NOT pg_has_role('pgsched_operator', 'pgsched_viewer', 'USAGE') THEN
        GRANT pgsched_viewer TO pgsched_operator;
    END IF;
    IF to_regrole('pgsched_console') IS NOT NULL THEN
        IF NOT pg_has_role('pgsched_console', 'pgsched_operator', 'USAGE') THEN
            GRANT pgsched_operator TO pgsched_console;
        END IF;
    END IF;
END $$;

-- ---- everything is owned by a role that is no login

-- So functions that run with their owner's rights have this role's rights, and not those of a superuser.
DO $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT 'ALTER SCHEMA pgsched OWNER TO pgsched_owner'  -- first: an owner of tables must be able to make some
        UNION ALL
        SELECT format('ALTER TABLE %s OWNER TO pgsched_owner', c.oid::regclass) FROM pg_class c
        WHERE c.relnamespace = 'pgsched'::regnamespace AND c.relkind IN ('r', 'p')
          AND c.relowner <> 'pgsched_owner'::regrole
        UNION ALL
        SELECT format('ALTER SEQUENCE %s OWNER TO pgsched_owner', c.oid::regclass) FROM pg_class c
        WHERE c.relnamespace = 'pgsched'::regnamespace AND c.relkind = 'S' AND c.relowner <> 'pgsched_owner'::regrole
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'i')
        UNION ALL
        SELECT format('ALTER ROUTINE %s OWNER TO pgsched_owner', p.oid::regprocedure) FROM pg_proc p
        WHERE p.pronamespace = 'pgsched'::regnamespace AND p.proowner <> 'pgsched_owner'::regrole
    LOOP
        EXECUTE statement;
    END LOOP;
END $$;

-- ---- no role has any rights except the following

REVOKE ALL ON SCHEMA pgsched FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA pgsched FROM PUBLIC, pgsched_worker, pgsched_leader, pgsched_producer,
    pgsched_operator, pgsched_viewer;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA pgsched FROM PUBLIC, pgsched_worker, pgsched_leader, pgsched_producer,
    pgsched_operator, pgsched_viewer;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA pgsched FROM PUBLIC, pgsched_worker, pgsched_leader, pgsched_producer,
    pgsched_operator, pgsched_viewer;

GRANT USAGE ON SCHEMA pgsched TO pgsched_worker, pgsched_leader, pgsched_producer, pgsched_operator, pgsched_viewer;
-- The insert of a run reads these sequences. Only functions set them. (The last: recent_runs reads the newest runs.)
GRANT SELECT ON SEQUENCE pgsched.asleep_until, pgsched.told_at, pgsched.gated_queues, pgsched.leader_looks_at,
    pgsched.tasks_with_options, pgsched.runs_id_seq TO pgsched_worker, pgsched_leader, pgsched_producer, pgsched_operator, pgsched_viewer;

-- Most functions have only the rights of the caller.
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pgsched
    TO pgsched_worker, pgsched_leader, pgsched_producer, pgsched_operator, pgsched_viewer;
-- A trigger does not check which role fires it. A role that put one of these on a table of its own would choose the
-- types of its rows. Their casts, which are code of that role, would run with the rights of pgsched_owner.
DO $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT format('REVOKE EXECUTE ON FUNCTION %s FROM pgsched_worker, pgsched_leader, pgsched_producer,'
                      ' pgsched_operator, pgsched_viewer', p.oid::regprocedure)
        FROM pg_proc p WHERE p.pronamespace = 'pgsched'::regnamespace AND p.prorettype = 'trigger'::regtype
    LOOP
        EXECUTE statement;
    END LOOP;
END $$;
-- Called only by other functions, which record what was really done.
REVOKE EXECUTE ON FUNCTION pgsched.note(text, text, text, jsonb) FROM pgsched_worker, pgsched_leader, pgsched_producer,
    pgsched_operator, pgsched_viewer;
REVOKE EXECUTE ON FUNCTION pgsched.prune_audit(integer) FROM pgsched_worker, pgsched_producer, pgsched_operator,
    pgsched_viewer;
REVOKE EXECUTE ON FUNCTION pgsched.take_turn(text)
    FROM pgsched_worker, pgsched_leader, pgsched_producer, pgsched_operator, pgsched_viewer;
REVOKE EXECUTE ON FUNCTION pgsched.forget_gates(), pgsched.mark_tasks(), pgsched.rebuild_flags(),
        pgsched.leader_sleeps(double precision)
    FROM pgsched_worker, pgsched_producer, pgsched_operator, pgsched_viewer;
-- Only workers set how long they sleep: until then each enqueue notifies them.
REVOKE EXECUTE ON FUNCTION pgsched.workers_asleep(double precision)
    FROM pgsched_leader, pgsched_producer, pgsched_operator, pgsched_viewer;
-- A role that only reads wakes no process.
REVOKE EXECUTE ON FUNCTION pgsched.tell_once(text, text), pgsched.tell_workers(text), pgsched.tell_leader(timestamptz)
    FROM pgsched_viewer;
-- A role that declares no jobs must not keep a worker waiting for its turn, nor the leader from withdrawing jobs that
-- are not declared any more.
REVOKE EXECUTE ON FUNCTION pgsched.take_declare_turn(), pgsched.share_declare_turn(), pgsched.try_declare_turn()
    FROM pgsched_producer, pgsched_operator, pgsched_viewer;

-- ---- functions that run with the rights of pgsched_owner, and why that gives no role more rights than it should have

-- They check the owner of the run or job (pgsched.refuse_others).
ALTER FUNCTION pgsched.cancel(bigint, text) SECURITY DEFINER;
ALTER FUNCTION pgsched.update_run(bigint, integer, timestamptz, text) SECURITY DEFINER;
ALTER FUNCTION pgsched.await_runs(bigint[]) SECURITY DEFINER;
ALTER FUNCTION pgsched.retry(bigint) SECURITY DEFINER;
ALTER FUNCTION pgsched.retry_now(bigint) SECURITY DEFINER;
ALTER FUNCTION pgsched.retry_tree(bigint) SECURITY DEFINER;
ALTER FUNCTION pgsched.cancel_backfill(bigint, text) SECURITY DEFINER;
ALTER FUNCTION pgsched.trigger(text, jsonb, text) SECURITY DEFINER;
ALTER FUNCTION pgsched.reset_mark(text) SECURITY DEFINER;
ALTER FUNCTION pgsched.backfill(text, timestamptz, timestamptz, text, integer, boolean, integer) SECURITY DEFINER;
ALTER FUNCTION pgsched.backfill_in_order(text[], timestamptz, timestamptz, text, integer, boolean, integer) SECURITY DEFINER;
ALTER FUNCTION pgsched.meet_run(bigint, text, text, jsonb, timestamptz, timestamptz, interval) SECURITY DEFINER;
ALTER FUNCTION pgsched.run_of_key(text) SECURITY DEFINER;
ALTER FUNCTION pgsched.set_tags(bigint, text[]) SECURITY DEFINER;
ALTER FUNCTION pgsched.hold_run(bigint) SECURITY DEFINER;
ALTER FUNCTION pgsched.delete_job(text) SECURITY DEFINER;
ALTER FUNCTION pgsched.include_dates(text, date, date) SECURITY DEFINER;
ALTER FUNCTION pgsched.delete_calendar(text) SECURITY DEFINER;
ALTER FUNCTION pgsched.remove_calendar_times(text, bigint[]) SECURITY DEFINER;
-- It needs the token, and changes nothing.
ALTER FUNCTION pgsched.assert_claim(bigint, uuid) SECURITY DEFINER;
REVOKE EXECUTE ON FUNCTION pgsched.assert_claim(bigint, uuid) FROM pgsched_viewer;  -- who reads all tokens
-- It makes room in a full queue as an enqueue does, by the queue's own settings.
ALTER FUNCTION pgsched.entry_state(text, text) SECURITY DEFINER;
REVOKE EXECUTE ON FUNCTION pgsched.entry_state(text, text) FROM pgsched_viewer;  -- who enqueues nothing
-- They store the keys of an enqueue, which nothing else writes. The first two check the owner of a key, the second also
-- that of the run which it locks. The third gives a key that stands for no run yet to the caller. The fourth is a
-- trigger, which checks whether a key was taken.
ALTER FUNCTION pgsched.take_key(text, text, text, timestamptz) SECURITY DEFINER;
ALTER FUNCTION pgsched.take_queued_key(text, text) SECURITY DEFINER;
ALTER FUNCTION pgsched.bind_key(text, text, bigint, interval) SECURITY DEFINER;
ALTER FUNCTION pgsched.refuse_untaken_key() SECURITY DEFINER;
REVOKE EXECUTE ON FUNCTION pgsched.take_key(text, text, text, timestamptz), pgsched.take_queued_key(text, text),
        pgsched.bind_key(text, text, bigint, interval)
    FROM pgsched_viewer;  -- who enqueues nothing
-- A worker registers its tasks by the first, in its own name, and their limits by the second. The insert of a run reads the
-- options of its task.
ALTER FUNCTION pgsched.register_tasks(text, jsonb) SECURITY DEFINER;
ALTER FUNCTION pgsched.declare_limits(text, boolean) SECURITY DEFINER;
REVOKE EXECUTE ON FUNCTION pgsched.register_tasks(text, jsonb), pgsched.declare_limits(text, boolean)
    FROM pgsched_leader, pgsched_producer, pgsched_operator, pgsched_viewer;
-- They check the owner of a session, and whose a name is (pgsched.check_name). Nobody else writes the tables of locks.
ALTER FUNCTION pgsched.session_open(uuid, interval, text) SECURITY DEFINER;
ALTER FUNCTION pgsched.session_renew(uuid) SECURITY DEFINER;
ALTER FUNCTION pgsched.session_end(uuid) SECURITY DEFINER;
ALTER FUNCTION pgsched.session_leases(uuid, uuid[], boolean) SECURITY DEFINER;
ALTER FUNCTION pgsched.lock_acquire(text, uuid, interval, interval, text, integer, text, uuid, text) SECURITY DEFINER;
ALTER FUNCTION pgsched.lock_release(text, uuid) SECURITY DEFINER;
ALTER FUNCTION pgsched.lock_renew(text, uuid) SECURITY DEFINER;
ALTER FUNCTION pgsched.lock_break(text, bigint) SECURITY DEFINER;
ALTER FUNCTION pgsched.assert_lock(text, bigint) SECURITY DEFINER;
ALTER FUNCTION pgsched.lock_line(text, integer) SECURITY DEFINER;
ALTER FUNCTION pgsched.lock_list(text, text, integer, boolean, text) SECURITY DEFINER;
ALTER FUNCTION pgsched.grant_names(text, name) SECURITY DEFINER;
ALTER FUNCTION pgsched.revoke_names(text, name) SECURITY DEFINER;
ALTER FUNCTION pgsched.restored() SECURITY DEFINER;
REVOKE EXECUTE ON FUNCTION pgsched.session_open(uuid, interval, text), pgsched.session_renew(uuid), pgsched.session_end(uuid),
        pgsched.session_leases(uuid, uuid[], boolean), pgsched.lock_release(text, uuid), pgsched.lock_renew(text, uuid), pgsched.lock_break(text, bigint),
        pgsched.lock_acquire(text, uuid, interval, interval, text, integer, text, uuid, text), pgsched.assert_lock(text, bigint)
    FROM pgsched_viewer;  -- who holds nothing
-- They check whose a key is (pgsched.check_key). Nobody else writes the store.
ALTER FUNCTION pgsched.kv_put(text, jsonb, bigint, uuid) SECURITY DEFINER;
ALTER FUNCTION pgsched.kv_delete(text, bigint) SECURITY DEFINER;
ALTER FUNCTION pgsched.kv_add(text, numeric) SECURITY DEFINER;
ALTER FUNCTION pgsched.kv_get(text) SECURITY DEFINER;
ALTER FUNCTION pgsched.kv_list(text, text, integer) SECURITY DEFINER;
ALTER FUNCTION pgsched.kv_changes(text, bigint, integer) SECURITY DEFINER;
ALTER FUNCTION pgsched.barrier_enter(text, uuid, integer, uuid, jsonb) SECURITY DEFINER;
ALTER FUNCTION pgsched.barrier_leave(text, uuid, bigint) SECURITY DEFINER;
ALTER FUNCTION pgsched.barrier_withdraw(text, uuid) SECURITY DEFINER;
REVOKE EXECUTE ON FUNCTION pgsched.kv_put(text, jsonb, bigint, uuid), pgsched.kv_delete(text, bigint), pgsched.kv_add(text, numeric),
        pgsched.barrier_enter(text, uuid, integer, uuid, jsonb), pgsched.barrier_leave(text, uuid, bigint),
        pgsched.barrier_withdraw(text, uuid)
    FROM pgsched_viewer;  -- who writes nothing
ALTER FUNCTION pgsched.node_read(text, boolean) SECURITY DEFINER;
ALTER FUNCTION pgsched.node_roots() SECURITY DEFINER;
ALTER FUNCTION pgsched.node_create(text, text, jsonb, uuid, boolean, boolean) SECURITY DEFINER;
ALTER FUNCTION pgsched.node_set(text, jsonb, bigint) SECURITY DEFINER;
ALTER FUNCTION pgsched.node_delete(text, bigint) SECURITY DEFINER;
ALTER FUNCTION pgsched.node_prune(text) SECURITY DEFINER;
REVOKE EXECUTE ON FUNCTION pgsched.node_create(text, text, jsonb, uuid, boolean, boolean), pgsched.node_set(text, jsonb, bigint),
        pgsched.node_delete(text, bigint), pgsched.node_prune(text)
    FROM pgsched_viewer;
-- They check whose a queue is (pgsched.item_queue_of), or that its caller owns the session which holds the item. Nobody else
-- writes items.
ALTER FUNCTION pgsched.item_put(text, jsonb, integer, interval) SECURITY DEFINER;
ALTER FUNCTION pgsched.item_put_many(text, jsonb[], integer, interval) SECURITY DEFINER;
ALTER FUNCTION pgsched.item_get(text, uuid, uuid, interval, integer, integer, boolean) SECURITY DEFINER;
ALTER FUNCTION pgsched.item_consume(bigint, uuid, uuid) SECURITY DEFINER;
ALTER FUNCTION pgsched.item_consume_many(bigint[], uuid[], uuid) SECURITY DEFINER;
ALTER FUNCTION pgsched.item_give_back(bigint, uuid, interval, text) SECURITY DEFINER;
ALTER FUNCTION pgsched.item_extend(bigint, uuid) SECURITY DEFINER;
ALTER FUNCTION pgsched.item_leave(text, uuid, uuid) SECURITY DEFINER;
ALTER FUNCTION pgsched.item_counts(text) SECURITY DEFINER;
REVOKE EXECUTE ON FUNCTION pgsched.item_put(text, jsonb, integer, interval),
        pgsched.item_put_many(text, jsonb[], integer, interval),
        pgsched.item_get(text, uuid, uuid, interval, integer, integer, boolean),
        pgsched.item_consume(bigint, uuid, uuid), pgsched.item_consume_many(bigint[], uuid[], uuid),
        pgsched.item_give_back(bigint, uuid, interval, text), pgsched.item_extend(bigint, uuid),
        pgsched.item_leave(text, uuid, uuid)
    FROM pgsched_viewer;  -- who reads all tokens
-- It pauses jobs, of all owners, by their own column and their runs. Nobody but the leader calls it.
ALTER FUNCTION pgsched.pause_failing(integer) SECURITY DEFINER;
REVOKE EXECUTE ON FUNCTION pgsched.pause_failing(integer)
    FROM pgsched_worker, pgsched_producer, pgsched_operator, pgsched_viewer;
-- They end sessions that nobody renews, and delete names that nobody uses. What they end and delete depends on the clock only.
ALTER FUNCTION pgsched.sweep_sessions(integer, name, bigint[]) SECURITY DEFINER;
ALTER FUNCTION pgsched.prune_locks(text, integer) SECURITY DEFINER;
ALTER FUNCTION pgsched.prune_roots(text, integer) SECURITY DEFINER;
REVOKE EXECUTE ON FUNCTION pgsched.sweep_sessions(integer, name, bigint[]), pgsched.prune_locks(text, integer),
        pgsched.prune_roots(text, integer)
    FROM pgsched_worker, pgsched_producer, pgsched_operator, pgsched_viewer;
ALTER FUNCTION pgsched.task_options(text) SECURITY DEFINER;
ALTER FUNCTION pgsched.task_keys(text, boolean) SECURITY DEFINER;
-- Triggers on rows that a user may write. The user may not write the changes that follow from an edit.
ALTER FUNCTION pgsched.runs_mend_phase() SECURITY DEFINER;
ALTER FUNCTION pgsched.jobs_before_update() SECURITY DEFINER;
ALTER FUNCTION pgsched.jobs_after_jobs() SECURITY DEFINER;
ALTER FUNCTION pgsched.jobs_rekey() SECURITY DEFINER;
ALTER FUNCTION pgsched.jobs_after_delete() SECURITY DEFINER;
ALTER FUNCTION pgsched.job_calendars_after() SECURITY DEFINER;
ALTER FUNCTION pgsched.audit_jobs_added() SECURITY DEFINER;
ALTER FUNCTION pgsched.audit_jobs_changed() SECURITY DEFINER;
ALTER FUNCTION pgsched.audit_jobs_gone() SECURITY DEFINER;
ALTER FUNCTION pgsched.audit_setting() SECURITY DEFINER;
ALTER FUNCTION pgsched.audit_backfills() SECURITY DEFINER;
ALTER FUNCTION pgsched.audit_calendars() SECURITY DEFINER;
ALTER FUNCTION pgsched.calendar_times_changed() SECURITY DEFINER;
ALTER FUNCTION pgsched.calendar_times_most() SECURITY DEFINER;
ALTER FUNCTION pgsched.audit_calendar_times() SECURITY DEFINER;
ALTER FUNCTION pgsched.audit_drains() SECURITY DEFINER;
ALTER FUNCTION pgsched.audit_tags() SECURITY DEFINER;
ALTER FUNCTION pgsched.audit_alerts() SECURITY DEFINER;
ALTER FUNCTION pgsched.audit_keys() SECURITY DEFINER;
ALTER FUNCTION pgsched.audit_tasks() SECURITY DEFINER;
ALTER FUNCTION pgsched.audit_file_entries() SECURITY DEFINER;
ALTER FUNCTION pgsched.file_entries_of_jobs() SECURITY DEFINER;
ALTER FUNCTION pgsched.file_entries_of_others() SECURITY DEFINER;
ALTER FUNCTION pgsched.file_entries_renamed() SECURITY DEFINER;

-- ---- which roles may read what

GRANT SELECT ON ALL TABLES IN SCHEMA pgsched TO pgsched_viewer, pgsched_leader;
GRANT SELECT ON pgsched.identity TO pgsched_producer, pgsched_worker, pgsched_operator;
GRANT SELECT ON pgsched.alembic_version, pgsched.jobs, pgsched.job_calendars, pgsched.runs, pgsched.attempts,
    pgsched.run_logs, pgsched.queues, pgsched.limits, pgsched.pauses, pgsched.buckets,
    pgsched.dependencies, pgsched.backfills, pgsched.kept_keys, pgsched.passed_over, pgsched.next_slots TO pgsched_producer;
-- jobs of all owners share calendars
GRANT SELECT ON pgsched.calendars, pgsched.calendar_times TO pgsched_producer, pgsched_operator, pgsched_worker;
-- without the jobs that their code declares, which belong to other owners
GRANT SELECT (id, name, hostname, pid, version, app, concurrency, queues, kinds, tasks, lease, started_at, seen_at, stopping_at,
        stopped_at, running, abandoned, blocked_at, blocked_by, drain_asked_at, drain_asked_by, clock_ahead_s, tz_version,
        pooler, releases, lost_runs) ON pgsched.workers TO pgsched_producer;
-- what it may enqueue; the names stand in the rows of workers as well
GRANT SELECT (task, app, release, options, schema, first_seen_at) ON pgsched.tasks TO pgsched_producer;
-- without the errors of its duties, which may show values of other owners
GRANT SELECT (term, holder, hostname, pid, elected_at, seen_at, resigned_at) ON pgsched.leader TO pgsched_producer;
REVOKE SELECT ON pgsched.audit FROM pgsched_leader;

-- ---- producers: what to run and when; never a state, a claim or an attempt

-- No table privilege except SELECT: a role with DELETE, UPDATE or TRUNCATE on a whole table may lock it against all
-- others. And no UPDATE of any column of runs: with it, a role may lock rows that workers are to settle.
GRANT INSERT (name, description, kind, task, args, queue, priority, tags, schedule, timezone, run_at, starts_at,
        ends_at, max_runs, jitter, delete_after_run, overlap, max_buffer, retry_within, misfire_after, catch_up,
        max_catch_up, catch_up_window, start_deadline, max_attempts, timeout, kill_after, backoff, backoff_base,
        backoff_max, backoff_jitter, success_codes, retry_codes, dead_codes, concurrency_key, concurrency_limit,
        after_jobs, paused, paused_by, paused_reason, resume_from, owner, keep, alert_after_failures,
        max_lateness, max_duration, expect_every, finish_by, mode, calendar, on_excluded, after_match,
        pause_after_failures, ping_url, alert_to),
    UPDATE (name, description, kind, task, args, queue, priority, tags, schedule, timezone, run_at, starts_at,
        ends_at, max_runs, jitter, delete_after_run, overlap, max_buffer, retry_within, misfire_after, catch_up,
        max_catch_up, catch_up_window, start_deadline, max_attempts, timeout, kill_after, backoff, backoff_base,
        backoff_max, backoff_jitter, success_codes, retry_codes, dead_codes, concurrency_key, concurrency_limit,
        after_jobs, paused, paused_by, paused_reason, resume_from, owner, keep, alert_after_failures,
        max_lateness, max_duration, expect_every, finish_by, mode, calendar, on_excluded, after_match,
        pause_after_failures, ping_url, alert_to)
    ON pgsched.jobs TO pgsched_producer, pgsched_operator;
-- state: the row policy limits which one a new run may have
GRANT INSERT (task, args, kind, queue, priority, available_at, unique_key, idempotency_key, concurrency_key, max_attempts,
        timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter, expires_at, options, tags, owner, state,
        has_children, keep) ON pgsched.runs TO pgsched_producer, pgsched_operator;
GRANT INSERT (job_id, from_date, until_date, reason), UPDATE (from_date, until_date, reason)
    ON pgsched.job_calendars TO pgsched_producer, pgsched_operator;
-- not the name: a new one would be written into the jobs of other owners
GRANT INSERT (name, description, owner), UPDATE (description, owner) ON pgsched.calendars TO pgsched_producer, pgsched_operator;
GRANT INSERT (calendar, from_date, until_date, weekdays, from_time, until_time, reason),
    UPDATE (from_date, until_date, weekdays, from_time, until_time, reason)
    ON pgsched.calendar_times TO pgsched_producer, pgsched_operator;
GRANT INSERT (run_id, parent_id, on_failure, any_of) ON pgsched.dependencies TO pgsched_producer, pgsched_operator;
-- what its files declare: the row policies limit it to its own
GRANT SELECT, INSERT (name), UPDATE (applied_at) ON pgsched.file_owners TO pgsched_producer, pgsched_operator;
GRANT SELECT, INSERT (owner, what, name, decides, run_at), UPDATE (owner, decides, run_at)
    ON pgsched.file_entries TO pgsched_producer, pgsched_operator;
-- no policy shows a worker any: its pause of a job asks whose file declares the job
GRANT SELECT ON pgsched.file_entries TO pgsched_worker;
-- whether the leader's duties work; without their errors, which may show values of other owners
GRANT SELECT (duty, row_id, tries, since, next_at) ON pgsched.set_aside TO pgsched_producer;

-- ---- operators: settings of all owners

GRANT DELETE ON pgsched.jobs, pgsched.job_calendars, pgsched.calendars, pgsched.calendar_times TO pgsched_operator;
GRANT UPDATE (name) ON pgsched.calendars TO pgsched_operator;
GRANT UPDATE (tags) ON pgsched.runs TO pgsched_operator;
GRANT INSERT, UPDATE, DELETE ON pgsched.limits, pgsched.queues, pgsched.pauses TO pgsched_operator;
-- what a file no longer declares; names of owners that nobody needs, and to whom a name belongs
GRANT DELETE ON pgsched.file_entries, pgsched.file_owners TO pgsched_operator;
GRANT UPDATE (role) ON pgsched.file_owners TO pgsched_operator;
GRANT DELETE ON pgsched.tasks TO pgsched_operator;  -- releases that were taken back, and apps that change hands
GRANT DELETE ON pgsched.kept_keys TO pgsched_operator;  -- one that is in somebody's way
-- without how long the audit is kept
GRANT UPDATE (keep, archive, keep_minutes, keep_hours) ON pgsched.retention TO pgsched_operator;
GRANT UPDATE (alert_after_failures, max_lateness, max_duration, expect_every, finish_by, alert_to, dead_runs, dead_runs_within)
    ON pgsched.alert_defaults TO pgsched_operator;
GRANT INSERT (job_id, kind, details), UPDATE (closed_at, recovery) ON pgsched.alerts TO pgsched_operator;  -- a test
GRANT UPDATE (drain_asked_at, drain_asked_by) ON pgsched.workers TO pgsched_operator;

-- ---- workers: claims, and their outcomes

GRANT UPDATE (state, phase, token, worker_id, attempt, started_at, finished_at, lease_until, available_at, expires_at,
        ready_at, crashes, begun, suspect, awaited, result, error, reason, progress, options) ON pgsched.runs TO pgsched_worker;
-- jobs that its code declares, or does not declare any more
GRANT DELETE, INSERT (declared_by) ON pgsched.jobs TO pgsched_worker;
GRANT INSERT ON pgsched.attempts, pgsched.refunds TO pgsched_worker;
GRANT INSERT, UPDATE (stream, chunk), DELETE ON pgsched.run_logs TO pgsched_worker;
GRANT SELECT, INSERT, UPDATE ON pgsched.workers TO pgsched_worker;
GRANT SELECT ON pgsched.tasks TO pgsched_worker;
-- if there is no leader, workers check jobs for problems
GRANT SELECT ON pgsched.rollups, pgsched.alert_defaults TO pgsched_worker;
GRANT SELECT, INSERT, UPDATE ON pgsched.alerts, pgsched.alert_deliveries TO pgsched_worker;

-- ---- the leader

GRANT INSERT, UPDATE, DELETE ON pgsched.runs, pgsched.dependencies, pgsched.leader, pgsched.buckets TO pgsched_leader;
GRANT DELETE, UPDATE (decided_until, next_run_at, run_count, error, error_at, shifts) ON pgsched.jobs TO pgsched_leader;
GRANT UPDATE (replan) ON pgsched.calendars TO pgsched_leader;
GRANT UPDATE, DELETE ON pgsched.passed_over, pgsched.backfills, pgsched.kept_keys TO pgsched_leader;
GRANT INSERT, DELETE ON pgsched.attempts TO pgsched_leader;
GRANT DELETE ON pgsched.run_logs, pgsched.pauses, pgsched.refunds TO pgsched_leader;
GRANT UPDATE (waits_for) ON pgsched.pauses TO pgsched_leader;
GRANT DELETE, UPDATE (stopped_at, lost_runs) ON pgsched.workers TO pgsched_leader;
GRANT UPDATE (applied_at) ON pgsched.queues, pgsched.limits TO pgsched_leader;
GRANT INSERT, UPDATE, DELETE ON pgsched.rollups, pgsched.alerts, pgsched.alert_deliveries TO pgsched_leader;
GRANT UPDATE ON pgsched.rollup_mark TO pgsched_leader;
GRANT INSERT ON pgsched.archived_runs TO pgsched_leader;
GRANT INSERT, UPDATE, DELETE ON pgsched.set_aside TO pgsched_leader;
GRANT INSERT, UPDATE ON pgsched.next_slots TO pgsched_leader;

-- ---- rows: producers see their own, the others see all. A row belongs to the role that made it (its column owner).

ALTER TABLE pgsched.runs ALTER COLUMN owner SET DEFAULT current_user;
-- written by functions that run with the rights of pgsched_owner
ALTER TABLE pgsched.kept_keys ALTER COLUMN owner SET DEFAULT pgsched.caller();

DO $$
DECLARE
    name text;
    policy record;
BEGIN
    FOR policy IN SELECT tablename, policyname FROM pg_policies WHERE schemaname = 'pgsched' AND policyname LIKE E'pgsched\\_%' LOOP
        EXECUTE format('DROP POLICY %I ON pgsched.%I', policy.policyname, policy.tablename);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['jobs', 'job_calendars', 'runs', 'attempts', 'run_logs', 'dependencies', 'backfills',
                                'kept_keys', 'passed_over', 'next_slots', 'calendars', 'calendar_times'] LOOP
        EXECUTE format('ALTER TABLE pgsched.%I ENABLE ROW LEVEL SECURITY', name);
        -- a constant: the planner drops it, and claims cost what they did
        EXECUTE format('CREATE POLICY pgsched_all ON pgsched.%I TO pgsched_worker, pgsched_leader, pgsched_operator'
                       ' USING (true) WITH CHECK (true)', name);
        EXECUTE format('CREATE POLICY pgsched_read ON pgsched.%I FOR SELECT TO pgsched_viewer USING (true)', name);
    END LOOP;
    -- attempts and output belong to the owner of their run: they are visible where the row policies of runs show the run
    FOREACH name IN ARRAY ARRAY['attempts', 'run_logs'] LOOP
        EXECUTE format('CREATE POLICY pgsched_own ON pgsched.%I FOR SELECT TO pgsched_producer'
                       ' USING (EXISTS (SELECT FROM pgsched.runs r WHERE r.id = run_id))', name);
    END LOOP;
END $$;

-- Most rows belong to the current user. Memberships are checked only for other rows.
CREATE POLICY pgsched_own ON pgsched.jobs TO pgsched_producer
    USING (owner = current_user OR owner = ANY ((SELECT pgsched.my_roles())::name[]))
    WITH CHECK (owner = current_user OR owner = ANY ((SELECT pgsched.my_roles())::name[]));
CREATE POLICY pgsched_own ON pgsched.runs TO pgsched_producer
    USING (owner = current_user OR owner = ANY ((SELECT pgsched.my_roles())::name[]))
    WITH CHECK (owner = current_user OR owner = ANY ((SELECT pgsched.my_roles())::name[]));
CREATE POLICY pgsched_own ON pgsched.job_calendars TO pgsched_producer
    USING (EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = job_id))
    WITH CHECK (EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = job_id));
-- everybody may read calendars, and their owners change them
CREATE POLICY pgsched_shared ON pgsched.calendars FOR SELECT TO pgsched_producer USING (true);
CREATE POLICY pgsched_shared ON pgsched.calendar_times FOR SELECT TO pgsched_producer USING (true);
CREATE POLICY pgsched_own ON pgsched.calendars TO pgsched_producer
    USING (owner = current_user OR owner = ANY ((SELECT pgsched.my_roles())::name[]))
    WITH CHECK (owner = current_user OR owner = ANY ((SELECT pgsched.my_roles())::name[]));
CREATE POLICY pgsched_own ON pgsched.calendar_times TO pgsched_producer
    USING (EXISTS (SELECT FROM pgsched.calendars c WHERE c.name = calendar
                   AND (c.owner = current_user OR c.owner = ANY ((SELECT pgsched.my_roles())::name[]))))
    WITH CHECK (EXISTS (SELECT FROM pgsched.calendars c WHERE c.name = calendar
                        AND (c.owner = current_user OR c.owner = ANY ((SELECT pgsched.my_roles())::name[]))));
CREATE POLICY pgsched_own ON pgsched.dependencies TO pgsched_producer
    USING (EXISTS (SELECT FROM pgsched.runs r WHERE r.id = run_id))
    WITH CHECK (EXISTS (SELECT FROM pgsched.runs r WHERE r.id = run_id)
                AND EXISTS (SELECT FROM pgsched.runs r WHERE r.id = parent_id));
-- written only by pgsched.backfill, and by the triggers of jobs
CREATE POLICY pgsched_own ON pgsched.backfills FOR SELECT TO pgsched_producer
    USING (EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = job_id));
CREATE POLICY pgsched_own ON pgsched.passed_over FOR SELECT TO pgsched_producer
    USING (EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = job_id));
-- written by the leader
CREATE POLICY pgsched_own ON pgsched.next_slots FOR SELECT TO pgsched_producer
    USING (EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = job_id));
-- No policy lets a producer write a row: only the functions that store keys do.
CREATE POLICY pgsched_own ON pgsched.kept_keys FOR SELECT TO pgsched_producer
    USING (owner = current_user OR owner = ANY ((SELECT pgsched.my_roles())::name[]));

-- Only the leader may make jobs and runs of another owner, or runs that have run already.
CREATE POLICY pgsched_born ON pgsched.runs AS RESTRICTIVE FOR INSERT TO pgsched_producer, pgsched_worker, pgsched_operator
    WITH CHECK (state IN ('queued', 'scheduled', 'waiting')
                AND (owner = current_user OR owner = ANY ((SELECT pgsched.my_roles())::name[]))
                OR (SELECT pg_has_role('pgsched_leader', 'USAGE')));
CREATE POLICY pgsched_born ON pgsched.jobs AS RESTRICTIVE FOR INSERT TO pgsched_producer, pgsched_worker, pgsched_operator
    WITH CHECK (owner = current_user OR owner = ANY ((SELECT pgsched.my_roles())::name[]));

-- Files of jobs. A producer uses the names of owners that are its own, and declares its own jobs and calendars with them. A
-- worker or leader is no exception: it makes jobs that its code declares.
ALTER TABLE pgsched.file_owners ENABLE ROW LEVEL SECURITY;
ALTER TABLE pgsched.file_entries ENABLE ROW LEVEL SECURITY;
CREATE POLICY pgsched_all ON pgsched.file_owners TO pgsched_operator USING (true) WITH CHECK (true);
CREATE POLICY pgsched_all ON pgsched.file_entries TO pgsched_operator USING (true) WITH CHECK (true);
CREATE POLICY pgsched_read ON pgsched.file_owners FOR SELECT TO pgsched_viewer, pgsched_leader USING (true);
CREATE POLICY pgsched_read ON pgsched.file_entries FOR SELECT TO pgsched_viewer, pgsched_leader USING (true);
CREATE POLICY pgsched_own ON pgsched.file_owners TO pgsched_producer
    USING (role = current_user OR role = ANY ((SELECT pgsched.my_roles())::name[]))
    WITH CHECK (role = current_user OR role = ANY ((SELECT pgsched.my_roles())::name[]));
CREATE POLICY pgsched_own ON pgsched.file_entries TO pgsched_producer
    USING (owner IN (SELECT o.name FROM pgsched.file_owners o
                     WHERE o.role = current_user OR o.role = ANY ((SELECT pgsched.my_roles())::name[])))
    WITH CHECK (owner IN (SELECT o.name FROM pgsched.file_owners o
                          WHERE o.role = current_user OR o.role = ANY ((SELECT pgsched.my_roles())::name[]))
                AND pgsched.may_declare(what, name));
