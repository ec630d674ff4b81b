-- write_ahead: bring the log to disk as far as it has been written. A message that belongs to no transaction is the one
-- thing by which an open transaction can ask for that (PostgreSQL 17 and later); whoever decodes the log passes it over.
-- returns: nothing of use
-- locks: none
SELECT pg_logical_emit_message(false, 'pgsched', '', true)
