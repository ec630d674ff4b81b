-- A lock is taken, after a wait in line; renewed, written under, given back; and what its loss looks like.
--   psql -X -f lock.sql "$PGSCHED_DSN"
-- The table totals (day, cents) stands for yours.
\set QUIET on
\set ON_ERROR_STOP on
\pset format unaligned
\pset fieldsep ' '
\pset tuples_only on

-- A token of your own, a new one for each grant. Did no answer arrive? Ask again with it: the answer is the same.
SELECT gen_random_uuid() AS token \gset
SET example.token = :'token';

-- It is ours for 30 s, unless we renew it. After 10 minutes in line we give up.
DO $$
DECLARE
    answer record;
BEGIN
    LOOP
        SELECT * INTO answer FROM pgsched.lock_acquire('totals', current_setting('example.token')::uuid,
                                                       ttl => '30 s', wait => '10 min', note => 'the night of May 1');
        COMMIT;  -- at once: until then all others who ask for this lock wait
        EXIT WHEN answer.fence IS NOT NULL;
        IF answer.place IS NULL THEN
            RAISE EXCEPTION 'not in time: others hold it, or stand before us in line';
        END IF;
        PERFORM pg_sleep(0.5);  -- the next call also renews our place in line
    END LOOP;
END $$;
SELECT fence FROM pgsched.lock_acquire('totals', :'token') \gset
\echo granted

-- Every 10 s while we work. Null: it is lost.
SELECT CASE WHEN pgsched.lock_renew('totals', :'token') IS NULL THEN 'lost' ELSE 'renewed' END;

-- What we write is written while we hold the lock, or not at all.
BEGIN;
SELECT FROM pgsched.assert_lock('totals', :fence);
INSERT INTO totals (day, cents) VALUES ('2026-05-01', 1200) RETURNING 'written', cents;
COMMIT;

SELECT CASE WHEN pgsched.lock_release('totals', :'token') THEN 'given back' ELSE 'it was lost before' END;

-- PS410: so it ends if the lease has run out meanwhile, or an operator has broken the lock. Nothing is written.
\set ON_ERROR_STOP off
BEGIN;
SELECT FROM pgsched.assert_lock('totals', :fence);
\echo :SQLSTATE :LAST_ERROR_MESSAGE
ROLLBACK;
SELECT CASE WHEN pgsched.lock_renew('totals', :'token') IS NULL THEN 'lost' ELSE 'renewed' END;
