-- The audit: changes that people made.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: audit_acting_for
-- set the person for whom this transaction makes its changes (see pgsched.acting_for).
-- params: user text
-- returns: the user
-- locks: none
SELECT set_config('pgsched.user', %(user)s::text, true)


-- name: audit_list
-- return what people changed, the newest first.
-- params: what, name, who text, since timestamptz, ago interval, before_id bigint (null: any), n int
-- returns: (id, at, who, acting_as, for_user: the person that a console named, application, address, action, what,
--          name, change)
-- locks: none
SELECT id, at, who, acting_as, for_user, application, host(address) AS address, action, what, name, change
FROM pgsched.audit
WHERE (%(what)s::text IS NULL OR what = %(what)s::text) AND (%(name)s::text IS NULL OR name = %(name)s::text)
  AND (%(who)s::text IS NULL OR %(who)s::text IN (who, acting_as, for_user))
  AND (%(since)s::timestamptz IS NULL OR at >= %(since)s::timestamptz)
  AND (%(ago)s::interval IS NULL OR at >= clock_timestamp() - %(ago)s::interval)
  AND (%(before_id)s::bigint IS NULL OR id < %(before_id)s::bigint)
ORDER BY id DESC LIMIT %(n)s
