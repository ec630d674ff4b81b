-- The leader does not look again for what was due long ago (pgsched/leader/timing/floors.py): whoever makes a job due that
-- has been waiting since then (a resume, a run_at that has passed, next_run_at set by hand) makes it due now. Which slots it
-- gets, its high-water mark says, and not this column.
CREATE OR REPLACE TRIGGER b_plan_again BEFORE UPDATE OF next_run_at ON pgsched.jobs
    FOR EACH ROW WHEN (current_setting('pgsched.ticks', true) IS DISTINCT FROM 'on' AND NEW.error IS NULL
                       AND NEW.next_run_at IS DISTINCT FROM OLD.next_run_at)
    EXECUTE FUNCTION pgsched.jobs_plan_again();
CREATE TRIGGER c_due_now BEFORE INSERT OR UPDATE OF paused, schedule, run_at, starts_at ON pgsched.jobs
    FOR EACH ROW WHEN (NEW.next_run_at < clock_timestamp() - interval '1 second')
    EXECUTE FUNCTION pgsched.jobs_plan_again();

-- A queue that gets its first limit is shut until the transactions have ended that may not have seen it, for five seconds at
-- most (pgsched/leader/changed_limits.py). Whom it waits for, the leader notes; that neither wakes anybody nor is it a change
-- that a person made.
ALTER TABLE pgsched.pauses ADD COLUMN waits_for integer;
COMMENT ON COLUMN pgsched.pauses.waits_for IS
    'Of a queue that is shut while its first limit is applied (what = limit, since paused_at): the process id of the session whose open transaction it waits for.';
CREATE OR REPLACE TRIGGER a_notify AFTER UPDATE OF what, name, paused_at, paused_by, reason, resume_at OR DELETE
    ON pgsched.pauses FOR EACH ROW EXECUTE FUNCTION pgsched.pauses_notify();
CREATE OR REPLACE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE OF what, name, paused_at, paused_by, reason, resume_at
    ON pgsched.pauses FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('pause');
