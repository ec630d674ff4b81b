-- worker_stop: say that this worker takes no more (stopping), or is gone (stopped).
-- params: worker_id bigint, name text (a failover may have given the number to another), stopped boolean
-- returns: nothing
-- locks: that row
UPDATE pgsched.workers SET stopping_at = coalesce(stopping_at, clock_timestamp()), seen_at = clock_timestamp(),
    stopped_at = CASE WHEN %(stopped)s THEN clock_timestamp() END
WHERE id = %(worker_id)s AND name = %(name)s
