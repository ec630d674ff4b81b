-- The schedule grammar of pgsched/core/schedule/grammar.py, word for word, as 0001 has it: after # stands one number.

CREATE OR REPLACE FUNCTION pgsched.schedule_item_error(field text, item text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reason text;
BEGIN
    IF field = 'day of month' AND item ~* '^lw?$' THEN
        RETURN NULL;
    ELSIF field = 'day of month' AND item ~* '^[0-9]+w$' THEN
        RETURN pgsched.schedule_value_error(field, left(item, -1));
    ELSIF field = 'day of week' AND item ~* '^[0-9a-z]+#' THEN
        reason := pgsched.schedule_value_error(field, split_part(item, '#', 1));
        IF reason IS NULL AND item !~ '^[^#]+#0*[1-5]$' THEN
            reason := format('%s: "%s" needs a number from 1 to 5 after #', field, item);
        END IF;
        RETURN reason;
    ELSIF field = 'day of week' AND item ~* '^([0-9]+|[a-z]{3})l$' THEN
        RETURN pgsched.schedule_value_error(field, left(item, -1));
    END IF;
    RETURN pgsched.schedule_numbers_error(field, item);
END $$;
