-- enqueue_told: tell sleeping workers of runs that no trigger has looked at; in the transaction that made them.
-- params: queue text
-- returns: nothing of interest
-- locks: none
SELECT pgsched.tell_workers(coalesce(%(queue)s::text, 'default')) WHERE pgsched.may_be_asleep()
