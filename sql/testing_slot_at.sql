-- testing_slot_at: a run that was triggered stands for this slot.
-- params: id bigint, slot timestamptz
-- returns: nothing
-- locks: that run
UPDATE pgsched.runs SET scheduled_at = %(slot)s, origin = 'schedule' WHERE id = %(id)s
