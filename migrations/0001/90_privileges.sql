-- Nothing is open to everybody: roles are granted what they need by sql/roles.sql.
REVOKE ALL ON SCHEMA pgsched FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA pgsched FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA pgsched FROM PUBLIC;
