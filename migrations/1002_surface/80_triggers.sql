-- Whose limit a row is may be changed by an operator as well: the audit names it.
DROP TRIGGER f_audit ON pgsched.limits;
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE OF name, concurrency, rate, rate_period, rate_burst, ordered,
    weight, declared_by ON pgsched.limits FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('limit');
