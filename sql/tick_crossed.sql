-- tick_crossed: has one of the jobs that were prepared ahead of an instant got an unfinished run meanwhile? Its row was
-- locked, but pgsched.trigger, a retry and a plain insert take no lock that conflicts. Asked shortly before the
-- instant, and when it has come.
-- params: job_ids bigint[] (locked by tick_due), at timestamptz (the instant: a run of that slot is the batch's own)
-- returns: crossed boolean
-- locks: none
SELECT EXISTS (
    SELECT FROM pgsched.runs r
    WHERE r.job_id = ANY(%(job_ids)s::bigint[]) AND r.phase < 3 AND r.origin <> 'backfill'
      AND r.scheduled_at IS DISTINCT FROM %(at)s::timestamptz
) AS crossed
