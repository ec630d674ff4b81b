"""Whose a name is: the role's that used it first, or those' to which an operator granted it; readers and operators."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pgsched import App
from pgsched.errors import NotPermitted
from tests.support.logins import Logins, not_refused
from tests.support.recipes.calls import acquire, function_without, granted, refused, release, session, value
from tests.support.recipes.lines import asserted

pytestmark = [pytest.mark.pg14, pytest.mark.scram]
Db = psycopg.Connection[Any]
TAKE = "SELECT fence FROM pgsched.lock_acquire(%s, gen_random_uuid())"


def test_a_name_belongs_to_the_role_that_used_it_first(logins: Logins) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    token = uuid4()
    granted(alice, "a", token)
    assert refused(bob, TAKE, "a") == "42501"
    release(alice, token)
    assert refused(bob, TAKE, "a") == "42501", "also when nobody holds it"
    assert refused(bob, "SELECT pgsched.lock_break('a')") == "42501"
    assert refused(bob, "SELECT * FROM pgsched.lock_line('a')") == "42501"
    granted(bob, "b")


def test_the_error_says_what_to_do(logins: Logins) -> None:
    granted(logins.connect("alice"), "a")
    app = App("bobs", dsn=logins.dsn("bob"))
    with pytest.raises(NotPermitted, match="take another name, or let an operator grant it to both"):
        app.lock("a").acquire()
    app.close()


def test_a_granted_prefix_is_for_the_roles_of_its_grants_only(logins: Logins, db: Db) -> None:
    alice, bob, ops = logins.connect("alice"), logins.connect("bob"), logins.connect("ops")
    grant = "SELECT pgsched.grant_names('pay/', %s)"
    granted(alice, "pay/1")
    assert refused(alice, grant, logins.name("alice")) == "42501"
    assert refused(ops, grant, "nobody at all") == "23514"
    ops.execute(grant, [logins.name("bob")])
    assert refused(alice, TAKE, "pay/1") == refused(alice, TAKE, "pay/new") == "42501", "whoever used it first"
    assert refused(alice, TAKE, "pay") == "not refused"
    granted(bob, "pay/2")
    ops.execute(grant, [logins.name("alice")])
    assert acquire(alice, "pay/2").fence is None, "it may wait for it now"
    assert value(alice, "SELECT pgsched.lock_break('pay/2')") == 1
    assert value(ops, "SELECT pgsched.revoke_names('pay/', %s)", logins.name("alice")) is True
    assert value(ops, "SELECT pgsched.revoke_names('pay/', %s)", logins.name("alice")) is False
    assert refused(alice, TAKE, "pay/2") == "42501"
    changes = "SELECT array_agg(action || ' ' || name ORDER BY id) FROM pgsched.audit WHERE what = 'names'"
    assert value(db, changes) == ["granted pay/", "granted pay/", "revoked pay/"]


def test_a_role_that_there_is_not_is_refused_with_a_similar_one(logins: Logins) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match='no role "pgsched_viewr"; did you mean pgsched_viewer'):
        logins.connect("ops").execute("SELECT pgsched.grant_names('pay/', 'pgsched_viewr')")


def test_a_session_s_token_is_of_no_use_to_another_role(logins: Logins, db: Db) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    mine, place = session(alice), uuid4()
    fence = granted(alice, "a", place, session=mine)
    calls = [
        f"SELECT pgsched.session_renew('{mine}')",
        f"SELECT pgsched.session_open('{mine}')",
        f"SELECT pgsched.session_end('{mine}')",
        f"SELECT pgsched.session_leases('{mine}', ARRAY['{place}']::uuid[])",
        f"SELECT pgsched.lock_acquire('b', gen_random_uuid(), session => '{mine}')",
        f"SELECT pgsched.lock_release('a', '{place}')",
        f"SELECT pgsched.assert_lock('a', {fence})",
    ]
    assert not_refused(bob, *calls) == {}
    assert asserted(alice, fence)
    for name in ("session_renew", "session_end", "lock_release", "session_leases"):
        function_without(db, name, "PERFORM pgsched.refuse_others(", "PERFORM concat(")
    assert set(not_refused(bob, *calls)) == {calls[0], calls[1], calls[2], calls[3], calls[5]}, "but for the guard"


def test_operators_see_break_and_use_all_and_the_audit_says_who(logins: Logins, db: Db) -> None:
    alice, ops = logins.connect("alice"), logins.connect("ops")
    fence, other = granted(alice, "a", note="x"), granted(alice, "s", capacity=2)
    granted(alice, "s", capacity=2)
    assert value(ops, "SELECT note FROM pgsched.lock_line('a')") == "x"
    assert value(ops, "SELECT pgsched.lock_break('a', %s)", fence + 100) == 0
    assert value(ops, "SELECT pgsched.lock_break('a')") == 1
    assert value(ops, "SELECT pgsched.lock_break('s', %s)", other) == 1
    assert not asserted(alice, fence) and not asserted(alice, other, "s")
    said = "SELECT array_agg(name || ' ' || (change ->> 'fence')) FROM pgsched.audit WHERE what = 'lock' AND who = %s"
    assert value(db, said, logins.name("ops")) == [f"a {fence}", f"s {other}"]
    assert granted(ops, "a")


def test_readers_see_every_line_and_hold_nothing(logins: Logins) -> None:
    alice, eye = logins.connect("alice"), logins.connect("eye")
    granted(alice, "a", note="x")
    assert value(eye, "SELECT note FROM pgsched.lock_line('a')") == "x"
    assert not_refused(
        eye,
        "SELECT pgsched.lock_acquire('b', gen_random_uuid())",
        "SELECT pgsched.lock_release('a', gen_random_uuid())",
        "SELECT pgsched.lock_break('a')",
        "SELECT pgsched.assert_lock('a', 1)",
        "SELECT pgsched.session_open(gen_random_uuid())",
        "SELECT pgsched.session_renew(gen_random_uuid())",
        "SELECT pgsched.session_end(gen_random_uuid())",
        "SELECT pgsched.session_leases(gen_random_uuid(), '{}')",
        "SELECT pgsched.grant_names('a', 'pgsched_viewer')",
        "SELECT pgsched.restored()",
        "SELECT pgsched.sweep_sessions(1)",
    ) == {}  # fmt: skip


def test_producers_write_no_table_of_locks_and_call_no_function_inside_them(logins: Logins) -> None:
    alice = logins.connect("alice")
    granted(alice)
    tables = ("sessions", "locks", "lock_places", "lock_losses", "name_grants", "role_room", "fences")
    statements = [f"SELECT * FROM pgsched.{table}" for table in tables]
    statements += [f"LOCK TABLE pgsched.{table} IN ACCESS SHARE MODE" for table in tables[:-1]]
    statements += [
        "SELECT nextval('pgsched.fences')",
        "SELECT pgsched.lock_settle('a')",
        "SELECT pgsched.lock_row('a')",
        "SELECT pgsched.lock_leave('a', 1)",
        "SELECT pgsched.lock_take_row('a', NULL, NULL)",
        "SELECT pgsched.has_room('locks', 'pgsched_producer', 1, 1)",
        "SELECT pgsched.leave_lines(ARRAY[1])",
        "SELECT pgsched.session_drop(1)",
        "SELECT pgsched.forget_names('x')",
        "SELECT pgsched.sweep_sessions(1)",
        "SELECT pgsched.restored()",
        "SELECT pgsched.grant_names('a', 'pgsched_producer')",
        "SELECT pgsched.revoke_names('a', 'pgsched_producer')",
    ]
    assert not_refused(alice, *statements) == {}


def test_names_that_look_alike_are_different_names(logins: Logins) -> None:
    """What shows them makes invisible characters visible; a name with control characters is refused."""
    alice, bob = logins.connect("alice"), logins.connect("bob")
    granted(alice, "pay")
    for name in ("pay\u200b", "p\u0430y", "PAY", "pay/", "e\u0301", "\u00e9"):
        granted(bob, name)
        assert refused(alice, TAKE, name) == "42501"
    for name in ("pay\n", "pay\x1b[1m", "pay "):
        assert refused(bob, TAKE, name) == "23514"
