-- tick_advance: move each decided job's high-water mark and next slot; keep or clear its error.
-- params: parallel arrays, one element for an outcome that many jobs may share: job_ids text[] (each an array literal),
--         decided_untils timestamptz[], next_run_ats timestamptz[] (null: no slot is left), run_counts int[] (new rows
--         that are runs), errors text[] (null: none); an array that is too short goes on with nulls
-- returns: nothing; sets pgsched.ticks for the transaction, by which the trigger b_plan_again knows the leader
-- locks: the rows that tick_due locked
UPDATE pgsched.jobs j SET
    decided_until = coalesce(greatest(j.decided_until, s.decided_until), j.decided_until),
    next_run_at = s.next_run_at, run_count = j.run_count + coalesce(s.run_count, 0), error = s.error,
    error_at = CASE WHEN s.error = j.error THEN j.error_at WHEN s.error IS NOT NULL THEN clock_timestamp() END
FROM unnest(%(job_ids)s::text[], %(decided_untils)s::timestamptz[], %(next_run_ats)s::timestamptz[],
            %(run_counts)s::int[], %(errors)s::text[]) AS s(job_ids, decided_until, next_run_at, run_count, error)
CROSS JOIN LATERAL unnest(s.job_ids::bigint[]) AS i(id)
CROSS JOIN (SELECT set_config('pgsched.ticks', 'on', true) AS ticks) t
WHERE j.id = i.id AND t.ticks = 'on'
