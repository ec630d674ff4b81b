-- With a backfill end those that were requested together with it: they are one thing. They are locked in the order of
-- their ids, and each one's owner is asked for.
CREATE OR REPLACE FUNCTION pgsched.cancel_backfill(backfill_id bigint, why text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    b pgsched.backfills;
    whole bigint;
    done text;
    author text := format('%s%s', session_user, coalesce(': ' || cancel_backfill.why, ''));
BEGIN
    IF length(why) > 9000 THEN  -- with some words more, it is the reason of each run (cancel)
        PERFORM pgsched.raise_bad_value(pgsched.bad_length('why', why, 9000), 'backfills');
    END IF;
    SELECT o.together INTO whole FROM pgsched.backfills o WHERE o.id = cancel_backfill.backfill_id;
    PERFORM pgsched.refuse_others(format('backfill %s', o.id), (SELECT j.owner FROM pgsched.jobs j WHERE j.id = o.job_id))
    FROM pgsched.backfills o WHERE o.id = cancel_backfill.backfill_id OR o.together = whole;  -- before any is locked (45_control.sql)
    -- the leader holds such a row while it starts runs: none can be born after the loop below has looked
    FOR b IN SELECT * FROM pgsched.backfills o WHERE o.id = cancel_backfill.backfill_id OR o.together = whole
             ORDER BY o.id FOR UPDATE LOOP
        PERFORM pgsched.refuse_others(format('backfill %s', b.id), (SELECT j.owner FROM pgsched.jobs j WHERE j.id = b.job_id));
        IF b.finished_at IS NOT NULL THEN
            done := coalesce(done, CASE WHEN b.cancelled_at IS NULL THEN 'finished' ELSE 'cancelled' END);
            CONTINUE;
        END IF;
        done := 'cancelled';
        PERFORM pgsched.note('cancelled', 'backfill', b.id::text,
            jsonb_build_object('job', b.job, 'why', left(cancel_backfill.why, 1000)));
        UPDATE pgsched.backfills SET cancelled_at = clock_timestamp(), finished_at = clock_timestamp(),
            cancelled_by = author WHERE id = b.id;
        PERFORM pgsched.cancel(r.id, format('backfill %s was cancelled%s', b.id, coalesce(': ' || cancel_backfill.why, '')))
        FROM (SELECT id FROM pgsched.runs WHERE backfill_id = b.id AND phase < 3 /* open */ ORDER BY id) r;
    END LOOP;
    RETURN done;
END $$;
