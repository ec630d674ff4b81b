-- Runs are enqueued: in a transaction of one's own, with a delay, with a unique key, with an idempotency key.
--   psql -X -f enqueue.sql "$PGSCHED_DSN"
-- The table orders (id, cents) stands for yours.
\set QUIET on
\set ON_ERROR_STOP on
\pset format unaligned
\pset fieldsep ' '
\pset tuples_only on

-- The run is there when the order is, and not before.
BEGIN;
INSERT INTO orders (id, cents) VALUES (7, 1200);
SELECT pgsched.enqueue('orders.total', '{"order": 7}') AS run \gset
COMMIT;
SELECT 'committed', state FROM pgsched.runs WHERE id = :run;

BEGIN;
INSERT INTO orders (id, cents) VALUES (8, 300);
SELECT pgsched.enqueue('orders.total', '{"order": 8}') AS run \gset
ROLLBACK;
SELECT 'rolled back', count(*) FROM pgsched.runs WHERE id = :run;

SELECT pgsched.enqueue('orders.remind', '{"order": 7}', delay => '1 hour') AS run \gset
SELECT 'delayed', state FROM pgsched.runs WHERE id = :run;

-- One unfinished run with this key, however many ask for it.
SELECT 'unique', how FROM pgsched.enqueue_result('shop.index', '{"shop": 3}', unique_key => 'index 3', delay => '5s');
SELECT 'unique', how FROM pgsched.enqueue_result('shop.index', '{"shop": 3}', unique_key => 'index 3', delay => '5s');
SELECT 'unique', how FROM pgsched.enqueue_result('shop.index', '{"shop": 3, "all": true}', unique_key => 'index 3',
                                                 on_conflict => 'replace', delay => '5s');

-- The same request, sent twice, is one run.
SELECT 'idempotent', how FROM pgsched.enqueue_result('cards.charge', '{"order": 7}', idempotency_key => 'order 7');
SELECT 'idempotent', how FROM pgsched.enqueue_result('cards.charge', '{"order": 7}', idempotency_key => 'order 7');
SELECT 'first result', state FROM pgsched.first_result('order 7');
