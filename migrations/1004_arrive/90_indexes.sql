-- Jobs that are watched (sql/alerts.sql).
DROP INDEX pgsched.jobs_watched;
CREATE INDEX jobs_watched ON pgsched.jobs (id) WHERE alert_after_failures IS NOT NULL OR max_lateness IS NOT NULL
    OR max_duration IS NOT NULL OR expect_every IS NOT NULL OR finish_by IS NOT NULL;
-- Jobs that may pause themselves (pgsched.pause_failing).
CREATE INDEX jobs_pausing ON pgsched.jobs (id) WHERE pause_after_failures IS NOT NULL AND NOT paused;
