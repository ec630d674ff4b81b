-- testing_slot: a run of a job for a slot that a clock has travelled past; none if the slot has its row.
-- params: job text, slot timestamptz
-- returns: id bigint, or no row
-- locks: the new row's
SELECT pgsched.trigger(%(job)s::text) WHERE NOT EXISTS (
    SELECT FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id
    WHERE j.name = %(job)s::text AND r.scheduled_at = %(slot)s::timestamptz)
