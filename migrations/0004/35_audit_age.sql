-- How long it is known who changed what. Only the owner of the tables deletes from the audit; the leader asks him to.
ALTER TABLE pgsched.retention ADD COLUMN keep_audit interval NOT NULL DEFAULT '400 days'
    CONSTRAINT retention_keep_audit_check CHECK (keep_audit BETWEEN '1 day' AND '1000 years');

-- Deletes up to n entries that the setting keeps no longer; returns how many.
CREATE FUNCTION pgsched.prune_audit(n integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH old AS (
        SELECT id FROM pgsched.audit
        WHERE at < clock_timestamp() - (SELECT keep_audit FROM pgsched.retention) ORDER BY at LIMIT n
    ), gone AS (
        DELETE FROM pgsched.audit a USING old WHERE a.id = old.id RETURNING a.id
    )
    SELECT count(*) FROM gone
$$;
