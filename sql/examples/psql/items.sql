-- Items of a queue: a consumer waits for one, and ends it together with what it writes; items are put, given back, counted.
--   psql -X -f items.sql "$PGSCHED_DSN"
-- The table images (id, thumbnail) stands for yours.
\set QUIET on
\set ON_ERROR_STOP on
\pset format unaligned
\pset fieldsep ' '
\pset tuples_only on

-- The session holds what we get, for 30 s unless we renew it. If we die, our items are handed out again.
SELECT gen_random_uuid() AS session, gen_random_uuid() AS token \gset
SELECT id AS number FROM pgsched.session_open(:'session', ttl => '30 s') \gset
SET example.session = :'session';
SET example.token = :'token';

-- A token of your own, a new one for each item. Did no answer arrive? Ask again with it: the answer is the same.
DO $$
DECLARE
    answer record;
BEGIN
    LOOP
        SELECT * INTO answer FROM pgsched.item_get('thumbnails', current_setting('example.token')::uuid,
                                                   current_setting('example.session')::uuid, wait => true);
        COMMIT;  -- at once: until then nobody else sees that we wait, or what we hold
        EXIT WHEN answer.id IS NOT NULL;
        PERFORM pgsched.session_renew(current_setting('example.session')::uuid);
        COMMIT;
        PERFORM pg_sleep(0.5);
    END LOOP;
END $$;
SELECT id AS item, value ->> 'image' AS image FROM pgsched.item_get('thumbnails', :'token', :'session') \gset
\echo got :image

-- What we write and the end of the item are one transaction. False: it was lost, and another consumer may have it.
BEGIN;
UPDATE images SET thumbnail = true WHERE id = :image;
SELECT pgsched.item_consume(:item, :'token', :'session') AS ours \gset
\if :ours
COMMIT;
\echo consumed
\else
ROLLBACK;
\echo lost
\endif
SELECT pgsched.session_end(:'session') AS left \gset

-- The lowest priority number is got first; of one number, what was put first. 100 if none is given.
SELECT pgsched.item_put('thumbnails', '{"image": 7}') AS seven, pgsched.item_put('thumbnails', '{"image": 8}', priority => 10) AS eight \gset
SELECT pgsched.item_put('thumbnails', '{"image": 9}', priority => 0, delay => '10 min') AS nine \gset
SELECT 'counts', ready, later, taken FROM pgsched.item_counts('thumbnails');

-- Without a session that we have opened, the item has one of its own, which lasts for 30 s.
SELECT gen_random_uuid() AS token \gset
SELECT id AS item, value ->> 'image' AS image FROM pgsched.item_get('thumbnails', :'token', hold => '30 s', max_attempts => 3) \gset
\echo got :image
-- Every 10 s while we work. Null: it is lost.
SELECT CASE WHEN pgsched.item_extend(:item, :'token') IS NULL THEN 'lost' ELSE 'extended' END;
-- It has failed: nobody gets it for a minute. After the third time it becomes a dead run.
SELECT CASE WHEN pgsched.item_give_back(:item, :'token', delay => '1 min', error => 'no such image') THEN 'given back' ELSE 'lost' END;
SELECT CASE WHEN pgsched.item_consume(:item, :'token') THEN 'consumed' ELSE 'lost' END;
SELECT 'counts', ready, later, taken FROM pgsched.item_counts('thumbnails');
