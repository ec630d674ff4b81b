-- pauses_now: all that is paused, as one text that changes with any of it.
-- params: none
-- returns: one text; empty when nothing is
-- locks: none
SELECT coalesce(string_agg(p::text, ',' ORDER BY p.what, p.name), '') FROM pgsched.pauses p
