"""Keys that were kept before they had owners: on the way to 0009, back from it, and where roles come later."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

from pgsched.db.schema import migrate, roles
from pgsched.db.schema.version import SCHEMA_VERSION
from tests.support.logins import Logins, alone, not_refused, one

BEFORE = "0007"
KEPT = "SELECT key, owner FROM pgsched.kept_keys ORDER BY key"
FIRST = "SELECT id, how FROM enqueue_result('t', idempotency_key => 'k')"
Db = psycopg.Connection[Any]


def back(dsn: str) -> None:
    """To the version before keys had owners, with the roles in force."""
    alone(lambda: migrate.upgrade(dsn, to=BEFORE))


def forward(dsn: str) -> None:
    alone(lambda: migrate.upgrade(dsn))


def test_keys_that_are_there_get_the_owners_of_their_runs(logins: Logins, dsn: str, db: Db) -> None:
    back(dsn)
    alice, bob = logins.connect("alice"), logins.connect("bob")
    for conn, key in ((alice, "a"), (bob, "b")):
        conn.execute("SELECT enqueue('t', idempotency_key => %s)", [key])
    db.execute("INSERT INTO pgsched.kept_keys (scope, key, run_id, task, expires_at)"
               " SELECT 'idempotency', 'key ' || n, 1, 't', now() + interval '1 day'"
               " FROM generate_series(1, 10500) n")  # fmt: skip
    forward(dsn)
    by = dict(db.execute(KEPT).fetchall())
    assert len(by) == 10502
    assert by.pop("b") == logins.name("bob")
    assert set(by.values()) == {logins.name("alice")}
    assert not_refused(bob, "SELECT enqueue('t', idempotency_key => 'a')") == {}


def test_a_key_taken_between_the_steps_and_the_revision_has_its_owner(logins: Logins, dsn: str, db: Db) -> None:
    back(dsn)
    for step in migrate.steps("0009"):
        db.execute(step.text.encode())
    first = one(logins.connect("alice"), "SELECT enqueue('t', idempotency_key => 'k')")
    forward(dsn)
    assert db.execute(KEPT).fetchall() == [("k", logins.name("alice"))]
    assert logins.connect("alice").execute(FIRST).fetchall() == [(first, "repeated")]
    assert not_refused(logins.connect("bob"), FIRST) == {}


def test_a_key_whose_owner_nobody_knows_gives_no_second_run(logins: Logins, dsn: str, db: Db) -> None:
    alice = logins.connect("alice")
    back(dsn)
    first = one(alice, "SELECT enqueue('t', idempotency_key => 'k')")
    db.execute("UPDATE pgsched.kept_keys SET state = 'succeeded', result = '1', finished_at = now()")
    db.execute("DELETE FROM pgsched.runs")
    forward(dsn)
    assert alice.execute(FIRST).fetchall() == [(first, "repeated")]
    assert alice.execute("SELECT * FROM first_result('k')").fetchall() == [], "it may be anybody's"
    assert logins.connect("ops").execute("SELECT run_id, result FROM first_result('k')").fetchall() == [(first, 1)]


def test_who_enqueues_goes_on_after_the_way_back(logins: Logins, dsn: str, db: Db) -> None:
    alice = logins.connect("alice")
    first = one(alice, "SELECT enqueue('t', idempotency_key => 'k')")
    back(dsn)
    assert alice.execute(FIRST).fetchall() == [(first, "repeated")]
    bucket = "SELECT how FROM enqueue_result('t', unique_key => 'u', unique_scope => 'bucket(1 day)')"
    assert [one(alice, bucket), one(alice, bucket)] == ["created", "existing"]
    rejected = "SELECT how FROM enqueue_result('t', unique_key => 'w', on_conflict => 'reject', idempotency_key => %s)"
    assert [one(alice, rejected, key) for key in "xyx"] == ["created", "rejected", "repeated"]
    forward(dsn)
    assert alice.execute(FIRST).fetchall() == [(first, "repeated")]
    assert one(db, "SELECT version_num FROM pgsched.alembic_version") == SCHEMA_VERSION


@pytest.mark.parametrize("key", ["idempotency_key => 'k'", "unique_key => 'k', unique_scope => 'bucket(1 day)'"])
def test_without_roles_keys_have_no_owner_and_are_everybodys(key: str, db: Db, session_name: str) -> None:
    """So also for a role with the grants of docs/enqueue.md, and in a function that has its owner's rights."""
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


def test_roles_that_come_later_give_no_second_run_for_a_key(db: Db) -> None:
    first = one(db, "SELECT pgsched.enqueue('t', idempotency_key => 'k')")
    alone(lambda: roles.apply(db))
    with db.transaction(force_rollback=True):
        db.execute("CREATE ROLE pgsched_late; GRANT pgsched_producer TO pgsched_late")
        db.execute("SET LOCAL ROLE pgsched_late")
        db.execute("SET LOCAL search_path = pgsched")
        assert db.execute(FIRST).fetchall() == [(first, "repeated")]
        assert one(db, "SELECT count(*) FROM kept_keys") == 0
