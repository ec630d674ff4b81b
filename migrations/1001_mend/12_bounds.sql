-- What no row may do to the others.

-- Rows that a duty of the leader does without for a while, because it fails with them; and, with an empty row_id, duties
-- that fail as a whole. Written by the leader alone (pgsched/leader/set_aside.py); a row that goes through again, or is
-- gone, goes from here.
CREATE TABLE pgsched.set_aside (
    duty    text NOT NULL,
    row_id  text NOT NULL,         -- what it is the number (or name) of, the duty says; '': the duty itself
    error   text NOT NULL,
    tries   integer NOT NULL DEFAULT 1,
    since   timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_at timestamptz NOT NULL,  -- when it is tried again
    PRIMARY KEY (duty, row_id),
    CONSTRAINT set_aside_texts_size CHECK (octet_length(duty) <= 100 AND octet_length(row_id) <= 4000
        AND octet_length(error) <= 4000)
) WITH (fillfactor = 50);

-- Since when leaders, this one or those before, have seen the database without a gap of half of the shortest lease.
ALTER TABLE pgsched.leader ADD COLUMN steady_since timestamptz NOT NULL DEFAULT clock_timestamp();

ALTER TABLE pgsched.archived_runs DROP CONSTRAINT archived_runs_pkey,
    ADD CONSTRAINT archived_runs_pkey PRIMARY KEY USING INDEX archived_runs_ended;

-- A longer range takes the leader seconds to count. What was asked for before ends with the reason: an UPDATE by the leader
-- would be refused.
UPDATE pgsched.backfills SET finished_at = clock_timestamp(), error = 'the range is longer than 100 years'
WHERE finished_at IS NULL AND CASE WHEN isfinite(from_at) AND isfinite(to_at)
    THEN to_at - from_at > interval '36525 days' ELSE true END;
-- (Instants that are none are refused by a trigger, which says so; infinite ones cannot be subtracted.)
ALTER TABLE pgsched.backfills ADD CONSTRAINT backfills_range CHECK (CASE
    WHEN finished_at IS NOT NULL OR from_at < '1970-01-01 00:00Z' OR to_at > '9000-01-01 00:00Z' THEN true
    ELSE to_at - from_at <= interval '36525 days' END) NOT VALID;

COMMENT ON TABLE pgsched.set_aside IS
    'Rows that a duty of the leader fails with, and duties that fail: each with its error and when it is tried again.';
