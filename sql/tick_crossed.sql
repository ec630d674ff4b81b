-- tick_crossed: has one of the jobs that were prepared ahead of an instant got an unfinished run meanwhile? Its row was
-- locked, but pgsched.trigger, a retry and a plain insert take no lock that conflicts. And is the same paused as when runs
-- of the batch were claimed? Asked shortly before the instant, and when it has come.
-- params: job_ids bigint[] (locked by tick_due), at timestamptz (the instant: a run of that slot is the batch's own),
--         pauses text: as claim_share (null: no run is claimed)
-- returns: crossed boolean
-- locks: none
SELECT EXISTS (
    SELECT FROM pgsched.runs r
    WHERE r.job_id = ANY(%(job_ids)s::bigint[]) AND r.phase < 3 AND r.origin <> 'backfill'
      AND r.scheduled_at IS DISTINCT FROM %(at)s::timestamptz
) OR coalesce(%(pauses)s::text <> (
    SELECT coalesce(string_agg(p::text, ',' ORDER BY p.what, p.name), '') FROM pgsched.pauses p
), false) AS crossed
