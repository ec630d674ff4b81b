-- dependencies_look: is there anything to do for runs that wait for others? So that a round without any costs one question.
-- params: none
-- returns: (slots, fresh, ended boolean): slots that wait for other jobs' slots; runs with new edges; parents that ended
-- locks: none
SELECT EXISTS (SELECT FROM pgsched.runs WHERE phase = 0 AND ready_at IS NULL AND available_at = '8998-01-01 00:00Z') AS slots,
    EXISTS (SELECT FROM pgsched.runs WHERE phase = 0 AND ready_at IS NULL AND available_at = '8999-01-01 00:00Z') AS fresh,
    EXISTS (SELECT FROM pgsched.runs WHERE phase >= 3 AND has_children) AS ended
