-- limit_writers: the transactions that have written, or are writing, runs. Each may have made one claimable because it did
-- not see a queue's first limit yet; whoever begins to write later sees what had been committed before this question.
-- params: none
-- returns: virtualtransaction
-- locks: none
SELECT DISTINCT virtualtransaction FROM pg_catalog.pg_locks
WHERE locktype = 'relation' AND relation = 'pgsched.runs'::regclass AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
  AND pid IS DISTINCT FROM pg_backend_pid()
