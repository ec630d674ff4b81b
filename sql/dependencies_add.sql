-- dependencies_add: make edges.
-- params: parallel arrays run_ids bigint[], parent_ids bigint[], on_failures text[], any_ofs boolean[]
-- returns: nothing
-- locks: the runs that are held back; see migrations/0003/43_dependencies.sql
INSERT INTO pgsched.dependencies (run_id, parent_id, on_failure, any_of)
SELECT run_id, parent_id, on_failure, any_of
FROM unnest(%(run_ids)s::text::bigint[], %(parent_ids)s::text::bigint[], %(on_failures)s::text::text[],
            %(any_ofs)s::text::boolean[]) AS e(run_id, parent_id, on_failure, any_of)
