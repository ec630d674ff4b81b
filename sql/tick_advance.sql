-- tick_advance: move each decided job's high-water mark and next slot; keep or clear its error.
-- params: parallel arrays job_ids bigint[], decided_untils timestamptz[], next_run_ats timestamptz[] (null: no slot
--         is left), run_counts int[] (slots that became runs), errors text[] (null: none)
-- returns: nothing
-- locks: the rows that tick_due locked
UPDATE pgsched.jobs j SET
    decided_until = coalesce(greatest(j.decided_until, s.decided_until), j.decided_until),
    next_run_at = s.next_run_at, run_count = j.run_count + s.run_count, error = s.error,
    error_at = CASE WHEN s.error IS NOT NULL THEN clock_timestamp() END
FROM unnest(%(job_ids)s::bigint[], %(decided_untils)s::timestamptz[], %(next_run_ats)s::timestamptz[],
            %(run_counts)s::int[], %(errors)s::text[]) AS s(job_id, decided_until, next_run_at, run_count, error)
WHERE j.id = s.job_id
