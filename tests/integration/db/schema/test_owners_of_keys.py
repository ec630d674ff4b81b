"""Kept keys without owners.

Without roles, no key has an owner. A key from before the roles still finds its run when roles are created later.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

from pgsched.db.schema import roles
from tests.support.logins import alone, one

KEPT = "SELECT key, owner FROM pgsched.kept_keys ORDER BY key"
FIRST = "SELECT id, how FROM enqueue_result('t', idempotency_key => 'k')"
Db = psycopg.Connection[Any]


@pytest.mark.parametrize("key", ["idempotency_key => 'k'", "unique_key => 'k', unique_scope => 'bucket(1 day)'"])
def test_without_roles_keys_have_no_owner_and_all_roles_share_them(key: str, db: Db, session_name: str) -> None:
    """This also holds for a role with the grants of docs/how-to/enqueue.md, and in a SECURITY DEFINER function."""
    first = one(db, f"SELECT pgsched.enqueue('t', {key})")
    assert db.execute(KEPT).fetchall() == [("k", None)]
    role = sql.Identifier(f"pgsched_other_{session_name}_{db.info.backend_pid}")
    db.execute(sql.SQL("CREATE ROLE {}").format(role))
    try:
        db.execute("CREATE FUNCTION public.mine() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS"
                   f" $$ SELECT pgsched.enqueue('t', {key}) $$".encode())  # fmt: skip
        db.execute(sql.SQL("GRANT USAGE ON SCHEMA pgsched TO {}").format(role))
        db.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA pgsched TO {}").format(role))
        db.execute(sql.SQL("GRANT INSERT, UPDATE, DELETE ON pgsched.runs, pgsched.kept_keys TO {}").format(role))
        db.execute(sql.SQL("SET ROLE {}").format(role))
        assert one(db, f"SELECT pgsched.enqueue('t', {key})") == one(db, "SELECT public.mine()") == first
        db.execute("RESET ROLE")
        db.execute("UPDATE pgsched.kept_keys SET expires_at = now()")
        db.execute(sql.SQL("SET ROLE {}").format(role))
        assert one(db, "SELECT public.mine()") == one(db, f"SELECT pgsched.enqueue('t', {key})") > first
    finally:
        db.execute("RESET ROLE")
        db.execute(sql.SQL("DROP OWNED BY {}").format(role))
        db.execute(sql.SQL("DROP ROLE {}").format(role))


def test_roles_created_later_give_no_second_run_for_a_key(db: Db) -> None:
    first = one(db, "SELECT pgsched.enqueue('t', idempotency_key => 'k')")
    alone(lambda: roles.apply(db))
    with db.transaction(force_rollback=True):
        db.execute("CREATE ROLE pgsched_late; GRANT pgsched_producer TO pgsched_late")
        db.execute("SET LOCAL ROLE pgsched_late")
        db.execute("SET LOCAL search_path = pgsched")
        assert db.execute(FIRST).fetchall() == [(first, "repeated")]
        assert one(db, "SELECT count(*) FROM kept_keys") == 0
