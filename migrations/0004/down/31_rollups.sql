DROP TABLE IF EXISTS pgsched.rollups, pgsched.rollup_mark;
DROP AGGREGATE IF EXISTS pgsched.histogram(integer, numeric);
