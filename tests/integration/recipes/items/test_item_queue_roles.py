"""Item queues belong to the role that used them first; calls read few pages, however many items there are."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.support.logins import Logins, one

PUT = "SELECT item_put('orders', '1')"
GET = "SELECT id FROM item_get('orders', %s, hold => '1 hour')"


def refused(session: psycopg.Connection[Any], statement: str, *params: object) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute(statement.encode(), params)


def test_a_queue_belongs_to_the_role_that_used_it_first(logins: Logins) -> None:
    alice, bob, ops = (logins.connect(who) for who in ("alice", "bob", "ops"))
    alice.execute(PUT)
    for call in (PUT, "SELECT item_counts('orders')"):
        refused(bob, call)
    refused(bob, GET, uuid4())
    assert one(ops, "SELECT ready FROM item_counts('orders')") == 1
    for who in ("alice", "bob"):
        ops.execute("SELECT grant_names('ord', %s)", [logins.name(who)])
    bob.execute(PUT)
    assert one(bob, GET, uuid4()) is not None
    ops.execute("SELECT revoke_names('ord', %s)", [logins.name("alice")])
    refused(alice, PUT)


def test_only_the_role_of_the_session_consumes(logins: Logins) -> None:
    """Who reads the token of somebody else, as viewers may, can do nothing with it."""
    alice, bob, eye = (logins.connect(who) for who in ("alice", "bob", "eye"))
    alice.execute(PUT)
    token, session = uuid4(), uuid4()
    alice.execute("SELECT session_open(%s)", [session])
    item = one(alice, "SELECT id FROM item_get('orders', %s, %s)", token, session)
    assert one(bob, "SELECT item_consume(%s, %s)", item, token) is False
    assert one(bob, "SELECT item_consume(%s, %s, %s)", item, token, session) is False
    assert one(bob, "SELECT item_give_back(%s, %s)", item, token) is False
    assert one(bob, "SELECT item_extend(%s, %s)", item, token) is None
    alice.execute("SELECT FROM item_get('empty', %s, %s, wait => true)", [uuid4(), session])
    bob.execute("SELECT item_leave('orders', %s, %s), item_leave('empty', %s, %s)", [token, session] * 2)
    assert one(eye, "SELECT count(*) FROM item_consumers WHERE waiting_since IS NOT NULL") == 1
    refused(bob, "SELECT FROM item_get('bobs', %s, %s)", uuid4(), session)
    for call in ("item_consume(1, %s)", "item_give_back(1, %s)", "item_extend(1, %s)"):
        refused(eye, f"SELECT {call}", token)
    refused(eye, PUT)
    assert one(alice, "SELECT item_consume(%s, %s)", item, token) is True


def test_the_tables_are_written_by_the_functions_alone(logins: Logins) -> None:
    alice = logins.connect("alice")
    for statement in (
        "SELECT FROM items",
        "DELETE FROM items",
        "INSERT INTO item_queues (name, owner) VALUES ('a', 'b')",
    ):
        refused(alice, statement)


def test_a_dead_item_belongs_to_the_owner_of_the_queue(logins: Logins) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    alice.execute(PUT)
    token = uuid4()
    item = one(alice, "SELECT id FROM item_get('orders', %s, max_attempts => 1)", token)
    alice.execute("SELECT item_give_back(%s, %s, error => 'no')", [item, token])
    run = one(alice, "SELECT id FROM runs WHERE kind = 'item' AND owner = current_user")
    refused(bob, "SELECT retry(%s)", run)
    with pytest.raises(psycopg.errors.CheckViolation, match="kind"):
        alice.execute("INSERT INTO runs (task, kind) VALUES ('orders', 'item')")
    assert one(alice, "SELECT retry(%s)", run) == "queued"
    assert one(alice, "SELECT ready FROM item_counts('orders')") == 1


# ---- pages


def pages(db: psycopg.Connection[Any], statement: str, *params: object) -> int:
    found = one(db, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", *params)[0]["Plan"]
    return int(found["Shared Hit Blocks"] + found["Shared Read Blocks"])


def test_calls_read_few_pages_of_a_long_queue(db: psycopg.Connection[Any]) -> None:
    session = uuid4()
    db.execute("SELECT pgsched.session_open(%s, '1 hour')", [session])
    put = "SELECT pgsched.item_put('q', '1')"
    get = "SELECT * FROM pgsched.item_get('q', %s, %s)"
    consume = "SELECT pgsched.item_consume(%s, %s)"
    db.execute(put)
    first = uuid4()
    db.execute(
        consume, [db.execute(get, [first, session]).fetchall()[0][0], first]
    )  # the first calls make plans, and rows
    # many that are due later, at a lower and at the same priority; many that wait; many that are held
    for priority, delay in ((1, "1 day"), (100, "1 day"), (100, "0"), (100, "0")):
        many = "SELECT pgsched.item_put_many('q', array_agg('1'::jsonb), %s, %s) FROM generate_series(1, 10000)"
        db.execute(many, [priority, delay])
    db.execute("SELECT count(*) FROM pgsched.item_get('q', %s, %s, most => 1000)", [uuid4(), session])
    token = uuid4()
    assert pages(db, put) < 60
    assert pages(db, get, token, session) < 100
    item = one(db, "SELECT id FROM pgsched.items WHERE token = %s", token)
    assert pages(db, consume, item, token) < 60


def test_items_are_no_work_for_workers(db: psycopg.Connection[Any]) -> None:
    """No row of runs, so that claims, the leader and status read what they did without items."""
    db.execute("SELECT pgsched.item_put_many('q', array_agg('1'::jsonb)) FROM generate_series(1, 1000)")
    assert one(db, "SELECT count(*) FROM pgsched.runs") == 0
