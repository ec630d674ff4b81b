-- A worker whose event loop does not turn keeps its leases, and so must be seen to be stuck.

-- Since when its loop has not turned, and which handlers are at it; NULL: it turns.
ALTER TABLE pgsched.workers ADD COLUMN blocked_at timestamptz, ADD COLUMN blocked_by text;
