-- limit_remove: remove a limit of keys.
-- params: name text
-- returns: name, or no row
-- locks: that row
DELETE FROM pgsched.limits WHERE name = %(name)s RETURNING name
