-- Late slots that are caught up one after the other wait, and are not held back by an overlap policy. Their reason is
-- the same, whole text in every row (pgsched/core/planning/overlap.py, IN_TURN). No search_path: it is to be inlined.
CREATE FUNCTION pgsched.waits_in_turn(reason text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(reason = 'catch_up: late, and one after the other', false)
$$;
