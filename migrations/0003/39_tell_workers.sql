-- Waking sleeping workers must not make enqueuers wait for each other: commits that notify take turns on one lock of the
-- whole server, each with its fsync.

-- When a run was last announced although a transaction in progress had announced another of its queue.
CREATE SEQUENCE pgsched.told_at MINVALUE 0 MAXVALUE 9000000000000 START 0;
GRANT SELECT ON SEQUENCE pgsched.told_at TO PUBLIC;

-- Notify the sleeping workers of a queue, once for all transactions that overlap: one is told of, and whoever is woken
-- looks again 3 and 15 ms later (pgsched/worker/claiming/polling.py). A transaction that goes on for long must not silence the
-- others: every 20 ms one of them notifies all the same. With its owner's rights: nobody else needs any on the sequence.
CREATE FUNCTION pgsched.tell_workers(queue text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_ms bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended(tell_workers.queue, 7236838)) THEN
        now_ms := (date_part('epoch', clock_timestamp()) * 1000)::bigint;
        -- a value of a clock that ran ahead is not believed
        IF coalesce(pg_sequence_last_value('pgsched.told_at'), 0) BETWEEN now_ms - 20 AND now_ms THEN
            RETURN NULL;
        END IF;
        PERFORM setval('pgsched.told_at', now_ms);
    END IF;
    PERFORM pg_notify('pgsched_runs', tell_workers.queue);
    RETURN NULL;
END $$;
