-- True: an idempotency key that stands for a run which was there before, and whose row does not name it (20_met_keys.sql).
ALTER TABLE pgsched.kept_keys ADD COLUMN IF NOT EXISTS met boolean;
