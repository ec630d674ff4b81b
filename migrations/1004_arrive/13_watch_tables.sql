-- What is watched where a job does not say it itself, and which runs without a job are. One row; a null: nothing.
CREATE TABLE pgsched.alert_defaults (
    name                 text PRIMARY KEY DEFAULT 'everything' CHECK (name = 'everything'),
    -- as the columns of pgsched.jobs; a job with 0 in its column is not watched for it
    alert_after_failures integer,
    max_lateness         interval,
    max_duration         interval,
    expect_every         interval,
    finish_by            interval,
    alert_to             text[],
    -- an incident is open while so many runs without a job ended dead within this time
    dead_runs            integer CHECK (dead_runs BETWEEN 1 AND 10000),
    dead_runs_within     interval NOT NULL DEFAULT '1 hour' CHECK (dead_runs_within BETWEEN '1 second' AND '31 days')
);
INSERT INTO pgsched.alert_defaults DEFAULT VALUES;

ALTER TABLE pgsched.alerts
    ADD COLUMN alert_to text[],  -- the named sinks that get it; null: all
    DROP CONSTRAINT alerts_kind_check,
    ADD CONSTRAINT alerts_kind_check CHECK (kind IN ('failures', 'lateness', 'duration', 'silence', 'unfinished', 'paused',
        'dead_runs', 'no_leader', 'test')) NOT VALID;
