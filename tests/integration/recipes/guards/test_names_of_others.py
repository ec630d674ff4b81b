"""What a role can do to names that belong to others: nothing, also in a moment that it has chosen well."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.support.logins import Logins
from tests.support.recipes.calls import acquire, function_without, granted, refused, release, value

pytestmark = [pytest.mark.pg14]
Db = psycopg.Connection[Any]
FIRST_CHECK = "PERFORM pgsched.refuse_others(format('lock \"%s\"', left(p.lock, 200)), s.owner)"
SECOND_CHECK = "AND (s.owner = pgsched.caller() OR pgsched.may_change(s.owner))"
PREFIX, REFUSED = "pay/", "42501"


def grant(logins: Logins, prefix: str = PREFIX) -> None:
    """Let alice alone use the names with this prefix."""
    logins.connect("ops").execute("SELECT pgsched.grant_names(%s, %s)", [prefix, logins.name("alice")])


@pytest.mark.parametrize("guarded", [True, False], ids=["with", "without"])
def test_without_a_check_in_the_lock_of_its_row_anybody_keeps_a_lock_from_all(
    db: Db, logins: Logins, guarded: bool
) -> None:
    """The lock may be granted between the first check and the statement that locks the row."""
    function_without(db, "assert_lock", FIRST_CHECK, "PERFORM")
    if not guarded:
        function_without(db, "assert_lock", SECOND_CHECK)
    alice, bob, token = logins.connect("alice"), logins.connect("bob"), uuid4()
    fence = granted(alice, "victim", token)
    with bob.transaction(force_rollback=True):
        assert refused(bob, "SELECT pgsched.assert_lock('victim', %s)", fence) == (
            "PS410" if guarded else "not refused"
        )
        assert release(alice, token, "victim")
        assert (acquire(alice, "victim").fence is not None) is guarded


def test_an_operator_asserts_what_others_hold(logins: Logins) -> None:
    fence = granted(logins.connect("alice"), "victim")
    assert refused(logins.connect("ops"), "SELECT pgsched.assert_lock('victim', %s)", fence) == "not refused"


def test_the_root_of_granted_keys_is_for_the_same_roles(db: Db, logins: Logins) -> None:
    grant(logins)
    alice, bob = logins.connect("alice"), logins.connect("bob")
    for statement in ("SELECT pgsched.kv_put('pay', '1')", "SELECT * FROM pgsched.node_create(NULL, 'pay', '1')",
                      "SELECT * FROM pgsched.kv_get('pay')"):  # fmt: skip
        assert refused(bob, statement) == REFUSED, statement
    assert refused(alice, "SELECT pgsched.kv_put('pay', '1')") == "not refused"
    assert value(alice, "SELECT names FROM pgsched.node_roots()") == ["pay"]
    assert value(bob, "SELECT names FROM pgsched.node_roots()") == []


def test_who_owns_a_root_neither_deletes_nor_lists_what_is_granted_to_others(db: Db, logins: Logins) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    bob.execute("SELECT pgsched.kv_put('app/mine', '1')")
    grant(logins, "app/pay/")
    alice.execute("SELECT pgsched.kv_put('app/pay/x', '1')")
    assert refused(bob, "SELECT pgsched.kv_delete('app/pay/x')") == REFUSED
    assert refused(bob, "SELECT pgsched.node_prune('app')") == REFUSED
    assert value(db, "SELECT count(*) FROM pgsched.store") == 2
    grant(logins, "app/private")
    alice.execute("SELECT pgsched.kv_put('app/private', '1')")
    assert value(bob, "SELECT children FROM pgsched.node_read('app', true)") == ["mine", "pay"]
    assert value(bob, "SELECT pgsched.node_prune('app/mine')") == 1


@pytest.mark.long
def test_a_path_is_made_only_through_names_that_the_caller_may_use(logins: Logins) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    bob.execute("SELECT pgsched.kv_put('app/mine', '1')")
    grant(logins, "app/p")
    logins.connect("ops").execute("SELECT pgsched.grant_names('app/p/q/', %s)", [logins.name("bob")])
    make = "SELECT * FROM pgsched.node_create('app/p/q', 'x', '1', makepath => true)"
    assert refused(bob, make) == REFUSED, "app/p is for alice alone"
    assert refused(alice, "SELECT * FROM pgsched.node_create('app', 'p', '1')") == "not refused"


@pytest.mark.long
def test_dead_items_are_those_of_the_role_to_which_the_queue_was_granted(db: Db, logins: Logins) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    bob.execute("SELECT * FROM pgsched.item_get('pay/in', gen_random_uuid())")  # before the name was granted
    grant(logins)
    assert refused(bob, "SELECT pgsched.item_put('pay/in', '1')") == REFUSED
    item = value(alice, """SELECT pgsched.item_put('pay/in', '{"card": 4111}')""")
    token = uuid4()
    alice.execute("SELECT * FROM pgsched.item_get('pay/in', %s, max_attempts => 1)", [token])
    alice.execute("SELECT pgsched.item_give_back(%s, %s, '0', 'no')", [item, token])
    (run,) = alice.execute("SELECT id FROM runs WHERE kind = 'item'").fetchone() or (None,)
    assert run is not None and bob.execute("SELECT id FROM runs WHERE kind = 'item'").fetchall() == []
    assert refused(bob, "SELECT pgsched.retry_now(%s)", run) == REFUSED
    assert value(alice, "SELECT pgsched.retry_now(%s)", run) == "queued"


def test_a_dead_item_goes_back_only_by_who_may_use_the_queue(db: Db, logins: Logins) -> None:
    bob, token = logins.connect("bob"), uuid4()
    item = value(bob, "SELECT pgsched.item_put('pay/in', '1')")
    bob.execute("SELECT * FROM pgsched.item_get('pay/in', %s, max_attempts => 1)", [token])
    bob.execute("SELECT pgsched.item_give_back(%s, %s, '0', 'no')", [item, token])
    grant(logins)
    run = value(bob, "SELECT id FROM runs WHERE kind = 'item'")
    assert refused(bob, "SELECT pgsched.retry_now(%s)", run) == REFUSED


@pytest.mark.parametrize("guarded", [True, False], ids=["with", "without"])
def test_without_the_look_before_a_call_that_writes_nothing_takes_a_root(db: Db, logins: Logins, guarded: bool) -> None:
    if not guarded:
        function_without(db, "kv_put", "IF expected > 0 AND", "IF false AND")
    assert value(logins.connect("bob"), "SELECT pgsched.kv_put('app/a', '1', 7)") is None
    alice = refused(logins.connect("alice"), "SELECT pgsched.kv_put('app/a', '1')")
    assert alice == ("not refused" if guarded else REFUSED)
