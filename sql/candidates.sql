-- candidates: among how many the leader is chosen.
-- params: none
-- returns: n int: sessions of leader candidates in this database, the leader's and this one among them
-- locks: none
SELECT count(*)::int AS n FROM pg_stat_activity
WHERE datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND application_name LIKE 'pgsched leader %'
