-- The pages that comments name have moved into the parts of docs/.

COMMENT ON SCHEMA pgsched IS
    'pgsched: scheduler and work queue. What other programs may use: docs/reference/sql.md.';
COMMENT ON TABLE pgsched.jobs IS
    'What runs, and when. INSERT, UPDATE and DELETE rows; docs/reference/jobs.md has every column.';
COMMENT ON TABLE pgsched.rollups IS
    'How many runs ended and how long they took, by minute and hour: docs/how-to/retention.md. Read only.';
COMMENT ON TABLE pgsched.alerts IS 'One row for each incident: docs/how-to/alerts.md. Read only.';
COMMENT ON FUNCTION pgsched.enqueue IS
    'Makes a run; returns its id, or that of the run which has the key already. Call it with named arguments: docs/how-to/enqueue.md.';
COMMENT ON FUNCTION pgsched.backfill IS
    'Runs the slots of a job in [from_at, to_at) once more. Returns the backfill''s id: docs/reference/jobs.md.';
