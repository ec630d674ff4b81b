-- How long a run is kept once it has ended, where the run itself says so.
ALTER TABLE pgsched.runs ADD COLUMN IF NOT EXISTS keep interval;
