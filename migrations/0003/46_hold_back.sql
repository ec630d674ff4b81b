-- Edges for a run that was just made: all of `after`, and one of `after_any`.
CREATE FUNCTION pgsched.hold_back(run_id bigint, after bigint[], after_any bigint[], on_failure text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := pgsched.not_one_of('on_failure', on_failure, ARRAY['cancel', 'run_anyway', 'wait']);
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'dependencies');
    END IF;
    INSERT INTO pgsched.dependencies (run_id, parent_id, on_failure, any_of)
    SELECT hold_back.run_id, p.id, hold_back.on_failure, bool_and(p.any_of) FROM (
        SELECT unnest(after) AS id, false AS any_of UNION ALL SELECT unnest(after_any), true) p
    WHERE p.id IS NOT NULL GROUP BY p.id;
END $$;
