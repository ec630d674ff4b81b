-- Since when limits alone hold a run (40_runs.sql); whether others wait for it (43_dependencies.sql).
ALTER TABLE pgsched.runs ADD COLUMN IF NOT EXISTS ready_at timestamptz, ADD COLUMN IF NOT EXISTS has_children boolean;
