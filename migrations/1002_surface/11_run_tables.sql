-- Columns for what the options of a run and of a task may say. runs.keep and its index: before/.
ALTER TABLE pgsched.limits ADD COLUMN declared_by text;

COMMENT ON COLUMN pgsched.runs.keep IS
    'How long it is kept once it has ended. NULL: what its job, its queue or the settings say.';
COMMENT ON COLUMN pgsched.limits.declared_by IS
    'The app that declares this limit with a task, and keeps it up to date. NULL: a person set it.';
-- A program waits for the end of this run: whoever ends it notifies (45_control.sql). Null: nobody has asked.
ALTER TABLE pgsched.runs ADD COLUMN awaited boolean;
