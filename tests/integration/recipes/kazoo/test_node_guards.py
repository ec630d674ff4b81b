"""What the tree of nodes promises by its checks: each test takes one out, and shows what happens then."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.support.logins import Logins
from tests.support.recipes.calls import function_without, refused, session, value
from tests.support.waiting import wait_until

Db = psycopg.Connection[Any]
Connect = Callable[..., Db]
WITH_AND_WITHOUT = pytest.mark.parametrize("guarded", [True, False], ids=["with", "without"])
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
FIRST_CHECK = """PERFORM pgsched.check_key(key);
    IF NOT"""


@WITH_AND_WITHOUT
def test_without_the_second_check_a_tree_could_be_taken_from_its_owner(logins: Logins, db: Db, guarded: bool) -> None:
    """Bob asks for a node while nobody has its root, and gets the lock of the root when it is alice's."""
    if not guarded:
        function_without(db, "node_create", f"PERFORM pgsched.store_lock(pgsched.store_root(key));\n    {FIRST_CHECK}",
                         "PERFORM pgsched.store_lock(pgsched.store_root(key));\n    IF NOT")  # fmt: skip
    alice, bob = logins.connect("alice"), logins.connect("bob")
    alice.execute("BEGIN")
    value(alice, "SELECT pgsched.node_create(NULL, 'app', '1')")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(refused, bob, "SELECT pgsched.node_create('app', 'b', '1', makepath => true)")
        wait_until(lambda: value(db, BLOCKED), 10, "bob to wait")
        alice.execute("COMMIT")
        assert asked.result(20) == ("42501" if guarded else "not refused")


@pytest.mark.few(3)
@pytest.mark.parametrize("call", ["node_set('app', '2')", "node_delete('app')", "node_prune('app')"])
@WITH_AND_WITHOUT
def test_without_the_check_of_the_key_anybody_changes_a_tree(logins: Logins, db: Db, call: str, guarded: bool) -> None:
    if not guarded:
        function = call.partition("(")[0]
        text = value(db, "SELECT pg_get_functiondef(%s::regproc)", f"pgsched.{function}")
        assert text.count("PERFORM pgsched.check_key(key);") == 2
        db.execute(re.sub(r"PERFORM pgsched\.check_key\(\w+\);", "", text).encode())
    value(logins.connect("alice"), "SELECT pgsched.node_create(NULL, 'app', '1')")
    bob = logins.connect("bob")
    assert refused(bob, f"SELECT pgsched.{call}") == ("42501" if guarded else "not refused")


@WITH_AND_WITHOUT
def test_without_the_check_of_the_session_an_ephemeral_node_gets_children(db: Db, guarded: bool) -> None:
    """They would stay when it goes."""
    if not guarded:
        function_without(db, "node_create", "ELSIF of_session IS NOT NULL THEN", "ELSIF false THEN")
    value(db, "SELECT pgsched.node_create(NULL, 'app', '1', %s)", session(db))
    problem = value(db, "SELECT problem FROM pgsched.node_create('app', 'a', '1')")
    assert problem == ("no_children" if guarded else None)


@pytest.mark.parametrize(
    ("function", "call"), [("node_set", "node_set('app', '2', 0)"), ("node_delete", "node_delete('app', 0)")]
)
@WITH_AND_WITHOUT
def test_without_the_comparison_of_the_version_the_second_of_two_wins_too(
    db: Db, connect: Connect, function: str, call: str, guarded: bool
) -> None:
    if not guarded:
        function_without(db, function, "ELSIF expected <> coalesce(found.revision - 1, 0) THEN", "ELSIF false THEN")
    value(db, "SELECT pgsched.node_create(NULL, 'app', '1')")
    with connect(autocommit=False) as one, connect() as two, ThreadPoolExecutor(1) as pool:
        assert value(one, "SELECT pgsched.node_set('app', '3', 0)") is None
        second = pool.submit(value, two, f"SELECT pgsched.{call}")
        wait_until(lambda: value(db, BLOCKED), 10, "the second one to wait")
        one.commit()
        assert second.result(20) == ("bad_version" if guarded else None)


@WITH_AND_WITHOUT
def test_without_the_check_of_the_name_a_node_is_looked_for_without_end(db: Db, guarded: bool) -> None:
    """The next node of a sequence without a name would have the name of its parent, which exists."""
    if not guarded:
        function_without(db, "node_create", "IF name IS NULL OR strpos", "IF strpos")
    db.execute("SET statement_timeout = '1 s'")
    call = "SELECT pgsched.node_create('app', NULL, '1', sequence => true, makepath => true)"
    assert refused(db, call) == ("23514" if guarded else "57014")


@WITH_AND_WITHOUT
def test_without_the_look_below_a_node_with_children_is_deleted(db: Db, guarded: bool) -> None:
    if not guarded:
        function_without(db, "node_delete", "ELSIF pgsched.node_has_children(key) THEN", "ELSIF false THEN")
    value(db, "SELECT pgsched.node_create('app', 'a', '1', makepath => true)")
    assert value(db, "SELECT pgsched.node_delete('app')") == ("not_empty" if guarded else None)


@WITH_AND_WITHOUT
def test_without_the_look_before_a_node_without_a_parent_takes_a_root(logins: Logins, db: Db, guarded: bool) -> None:
    """A root belongs to the role that made it: a call that makes nothing must make no root."""
    if not guarded:
        function_without(db, "node_set", """IF NOT pgsched.node_exists(key) THEN
        RETURN 'no_node';
    END IF;
    PERFORM pgsched.store_lock""", "PERFORM pgsched.store_lock")  # fmt: skip
    assert value(logins.connect("bob"), "SELECT pgsched.node_set('app', '1')") == "no_node"
    alice = refused(logins.connect("alice"), "SELECT pgsched.node_create(NULL, 'app', '1')")
    assert alice == ("not refused" if guarded else "42501")


@WITH_AND_WITHOUT
def test_a_call_deletes_at_most_a_thousand_nodes(db: Db, guarded: bool) -> None:
    if not guarded:
        function_without(db, "node_prune", "LIMIT 1000")
    value(db, "SELECT count(pgsched.kv_put('app/' || n, '1')) FROM generate_series(1, 1005) n")
    assert value(db, "SELECT pgsched.node_prune('app')") == (1000 if guarded else 1005)
