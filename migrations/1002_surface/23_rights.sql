-- The policy by which an administrator bounds the runs that the caller may make; null: there is none, or the caller may
-- change everybody's runs. No row policy judges what a function writes with the rights of the tables' owner. So such a
-- function refuses whatever the policy could forbid.
CREATE FUNCTION pgsched.bounding_policy() RETURNS name
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.polname FROM pg_policy p
    WHERE p.polrelid = 'pgsched.runs'::regclass AND NOT p.polpermissive AND p.polcmd IN ('a', 'w', '*')
      AND NOT starts_with(p.polname::text, 'pgsched_') AND NOT pgsched.may_change(NULL)
      AND EXISTS (SELECT FROM unnest(p.polroles) AS o(role)
                  WHERE CASE o.role WHEN 0 THEN true ELSE pg_has_role(pgsched.caller(), o.role, 'USAGE') END)
    ORDER BY p.polname LIMIT 1
$$;
