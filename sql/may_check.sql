-- may_check: may this connection's role say that a run has been checked (runs.checked)?
-- params: none
-- returns: boolean
-- locks: none
SELECT has_table_privilege('pgsched.runs', 'INSERT') AND NOT row_security_active('pgsched.runs')
