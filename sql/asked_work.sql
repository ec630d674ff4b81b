-- asked_work: is there anything for the leader beside ticking? One cheap probe a round; both tables are nearly empty.
-- params: none
-- returns: (passed_over boolean, backfills boolean)
-- locks: none
SELECT EXISTS (SELECT FROM pgsched.passed_over) AS passed_over,
    EXISTS (SELECT FROM pgsched.backfills WHERE finished_at IS NULL) AS backfills
