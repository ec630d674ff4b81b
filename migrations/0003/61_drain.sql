-- Somebody asks a worker to take no more runs and to end when those that it has are done; its heartbeat hears of it.
ALTER TABLE pgsched.workers ADD COLUMN drain_asked_at timestamptz, ADD COLUMN drain_asked_by text;
