-- With its owner's rights: nobody else needs any on the table, and nobody can write in another's name.
CREATE OR REPLACE FUNCTION pgsched.note(action text, what text, name text, change jsonb DEFAULT NULL) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO pgsched.audit (action, what, name, change, acting_as, for_user)
    VALUES ($1, $2, $3, $4, nullif(current_setting('role'), 'none'), pgsched.acting_for())
$$;
