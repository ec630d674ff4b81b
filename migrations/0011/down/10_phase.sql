-- PostgreSQL gives a column back its expression only by writing all rows anew, and the column another place.
-- With their triggers, which had other names at first.
DROP FUNCTION IF EXISTS pgsched.runs_born_in_phase(), pgsched.runs_mend_phase() CASCADE;
ALTER TABLE pgsched.runs DROP CONSTRAINT IF EXISTS runs_state, DROP CONSTRAINT IF EXISTS runs_texts_size;
ALTER TABLE pgsched.runs DROP COLUMN phase;
ALTER TABLE pgsched.runs ADD COLUMN phase smallint NOT NULL GENERATED ALWAYS AS (
    CASE state WHEN 'waiting' THEN 0 WHEN 'scheduled' THEN 1 WHEN 'queued' THEN 2
    WHEN 'running' THEN 2 WHEN 'dead' THEN 4 WHEN 'missed' THEN 4 ELSE 3 END) STORED;
ALTER TABLE pgsched.runs
    ADD CONSTRAINT runs_state CHECK (phase <> 3 OR state IN ('succeeded', 'cancelled', 'skipped')) NOT VALID,
    ADD CONSTRAINT runs_finished_when_ended CHECK ((finished_at IS NOT NULL) = (phase >= 3)) NOT VALID,
    ADD CONSTRAINT runs_running_has_claim
        CHECK (state <> 'running' OR (token IS NOT NULL AND lease_until IS NOT NULL)) NOT VALID,
    ADD CONSTRAINT runs_texts_size CHECK (octet_length(concat(error, reason)) <= 65536) NOT VALID;
CREATE UNIQUE INDEX runs_unique_key ON pgsched.runs (unique_key) WHERE unique_key IS NOT NULL AND phase < 3;
CREATE INDEX runs_claim ON pgsched.runs (queue, priority, available_at, id) WHERE phase = 2;
CREATE INDEX runs_scheduled ON pgsched.runs (available_at, id) WHERE phase = 1;
CREATE INDEX runs_expiring ON pgsched.runs (expires_at) WHERE phase < 3 AND expires_at IS NOT NULL;
CREATE INDEX runs_held ON pgsched.runs (held_until) WHERE phase = 0 AND held_until IS NOT NULL;
CREATE INDEX runs_open_of_job ON pgsched.runs (job_id) WHERE phase < 3 AND job_id IS NOT NULL;
CREATE INDEX runs_finished ON pgsched.runs (finished_at) WHERE phase >= 3;
CREATE INDEX runs_backfill ON pgsched.runs (backfill_id, phase) WHERE backfill_id IS NOT NULL;
CREATE INDEX runs_attention ON pgsched.runs (finished_at) WHERE phase = 4;
CREATE INDEX runs_ready ON pgsched.runs (queue, coalesce(concurrency_key, ''), priority, ready_at, id)
    WHERE ready_at IS NOT NULL AND phase = 0;
CREATE INDEX runs_of_key ON pgsched.runs (concurrency_key, phase, ready_at, id)
    WHERE concurrency_key IS NOT NULL AND phase < 3;
CREATE INDEX runs_waiting ON pgsched.runs (available_at, id) WHERE phase = 0 AND ready_at IS NULL;
CREATE INDEX runs_waiting_of_job ON pgsched.runs (job_id, scheduled_at, id) WHERE phase = 0 AND ready_at IS NULL;
CREATE INDEX runs_ended_parents ON pgsched.runs (id) WHERE phase >= 3 AND has_children;
