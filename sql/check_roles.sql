-- check_roles: which of the roles of sql/roles.sql the session's role acts as; none for a superuser, who needs none.
-- params: none
-- returns: role text (worker, leader, ...), no row where the roles are not in force
-- locks: none
SELECT substr(r.rolname, 9) AS role FROM pg_roles r
WHERE r.rolname IN ('pgsched_owner', 'pgsched_worker', 'pgsched_leader', 'pgsched_producer', 'pgsched_operator', 'pgsched_viewer')
  AND pg_has_role(r.oid, 'USAGE') AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
  AND EXISTS (SELECT FROM pg_policies WHERE schemaname = 'pgsched' AND policyname = 'pgsched_all')
ORDER BY 1
