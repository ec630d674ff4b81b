-- What is refused, and how a program tells it apart: by the SQLSTATE. docs/reference/errors.md has them all.
--   psql -X -f errors.sql "$PGSCHED_DSN"
-- The queue narrow stands for one of yours that is full (max_depth).
\set QUIET on
\set ON_ERROR_STOP off
\pset format unaligned
\pset fieldsep ' '
\pset tuples_only on

-- 23514: a value is wrong. The text begins with the name of the column, or of the schedule's field.
INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('hourly totals', '99 * * * *', 'orders.total');
\echo :SQLSTATE :LAST_ERROR_MESSAGE

-- 23505: an unfinished run has the key, and on_conflict says to reject.
SELECT pgsched.enqueue('shop.index', unique_key => 'index 4') AS run \gset
SELECT pgsched.enqueue('shop.index', unique_key => 'index 4', on_conflict => 'reject') AS run \gset
\echo :SQLSTATE :LAST_ERROR_MESSAGE

-- P0002: no such job.
SELECT pgsched.trigger('weekly totals') AS run \gset
\echo :SQLSTATE :LAST_ERROR_MESSAGE

-- PS429: the queue is full. Try again later, or do less.
SELECT pgsched.enqueue('orders.total', queue => 'narrow') AS run \gset
\echo :SQLSTATE :LAST_ERROR_MESSAGE

-- 22007 and others that begin with 22: PostgreSQL itself cannot read the value.
SELECT pgsched.enqueue('orders.total', delay => 'soon') AS run \gset
\echo :SQLSTATE :LAST_ERROR_MESSAGE
