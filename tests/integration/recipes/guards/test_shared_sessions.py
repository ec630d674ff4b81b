"""A session on which several things hang: none of them goes when another one does; and sessions that have ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from pgsched import App
from pgsched.recipes.sessions import keeper_thread
from tests.support.recipes.calls import granted, session, value
from tests.support.recipes.lines import asserted, line
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.pg14]
Db = psycopg.Connection[Any]
GET = "SELECT id FROM pgsched.item_get(%s, %s)"


def put_and_get(db: Db, queue: str, token: UUID) -> int:
    item = value(db, "SELECT pgsched.item_put(%s, '1')", queue)
    assert value(db, GET, queue, token) == item
    return int(item)


def test_to_find_no_item_ends_no_lock_of_the_same_token(db: Db) -> None:
    token = uuid4()
    fence = granted(db, "leader", token)
    assert value(db, GET, "empty", token) is None
    assert line(db, "leader") == [True] and asserted(db, fence, "leader")


def test_to_find_no_item_in_one_queue_ends_no_hold_in_another(db: Db) -> None:
    token = uuid4()
    item = put_and_get(db, "full", token)
    assert value(db, GET, "empty", token) is None
    db.execute("UPDATE pgsched.item_queues SET looked_at = '-infinity'")
    assert value(db, GET, "full", uuid4()) is None, "it is held"
    assert value(db, "SELECT pgsched.item_consume(%s, %s)", item, token) is True


def test_to_consume_an_item_ends_neither_a_lock_nor_a_key_on_its_session(db: Db) -> None:
    token = uuid4()
    item = put_and_get(db, "full", token)
    fence = granted(db, "leader", session=token)
    db.execute("SELECT pgsched.kv_put('note/x', '1', NULL, %s)", [token])
    assert value(db, "SELECT pgsched.item_consume(%s, %s)", item, token) is True
    assert asserted(db, fence, "leader")
    assert value(db, "SELECT value FROM pgsched.kv_get('note/x')") == 1


def test_to_release_a_lock_ends_no_hold_of_an_item_on_its_session(db: Db) -> None:
    token = uuid4()
    granted(db, "leader", token)
    item = value(db, "SELECT pgsched.item_put('full', '1')")
    mine = uuid4()
    assert value(db, "SELECT id FROM pgsched.item_get('full', %s, session => %s)", mine, token) == item
    assert value(db, "SELECT pgsched.lock_release('leader', %s)", token) is True
    assert value(db, "SELECT pgsched.item_consume(%s, %s)", item, mine) is True


def test_each_loss_of_a_session_is_told_by_its_renewal_in_whatever_order(db: Db) -> None:
    mine = session(db)
    for name in ("a", "b"):
        granted(db, name, session=mine)
    told = []
    for name in ("b", "a"):  # the newer grant first
        db.execute("SELECT pgsched.lock_break(%s)", [name])
        told.append(value(db, "SELECT (pgsched.session_renew(%s)).losses", mine))
    assert told == [1, 2]


@pytest.mark.long
def test_a_broken_lock_is_lost_without_notifications_whichever_was_broken_before(
    app: App, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_thread, "is_shared", lambda _: True)
    older, newer = app.lock("older", ttl=3).acquire(), app.lock("newer", ttl=3).acquire()
    for name, lock in (("newer", newer), ("older", older)):
        db.execute("SELECT pgsched.lock_break(%s)", [name])
        wait_until(lambda lock=lock: lock.lost, 20, f"{name} to be lost")


def held_by_the_dead(db: Db, other: Db, root: str, dead: UUID) -> None:
    """End a session while another transaction has locked a root: its keys there stay for now."""
    other.execute("SELECT pgsched.kv_put(%s, '1')", [f"{root}/other"])
    db.execute("SELECT pgsched.session_end(%s)", [dead])
    other.commit()


def test_a_dead_member_counts_for_no_barrier(db: Db, connect: Callable[..., Db]) -> None:
    dead, mine = session(db), session(db)
    enter = "SELECT open FROM pgsched.barrier_enter('b', gen_random_uuid(), 2, %s)"
    assert value(db, enter, dead) is False
    held_by_the_dead(db, connect(autocommit=False), "b", dead)
    assert value(db, enter, mine) is False


def test_a_key_of_a_dead_session_is_no_key_for_any_change(db: Db, connect: Callable[..., Db]) -> None:
    other = connect(autocommit=False)
    for change, left in (
        ("SELECT pgsched.kv_put('k/x', '6', 0) IS NOT NULL", 6),
        ("SELECT pgsched.kv_add('k/x', 6) = 6", 6),
        ("SELECT pgsched.kv_delete('k/x') IS NULL", None),
        ("SELECT problem IS NULL FROM pgsched.node_create('k', 'x', '6')", 6),
    ):
        dead = session(db)
        db.execute("SELECT pgsched.kv_delete('k/x')")
        db.execute("SELECT pgsched.kv_put('k/x', '5', NULL, %s)", [dead])
        held_by_the_dead(db, other, "k", dead)
        assert value(db, change) is True, change
        assert value(db, "SELECT value FROM pgsched.kv_get('k/x')") == left, change


def test_versions_of_a_root_that_the_backup_does_not_know_are_new(db: Db) -> None:
    before = [value(db, "SELECT pgsched.kv_put('r/x', '1')") for _ in range(6)]
    db.execute("DELETE FROM pgsched.store_changes; DELETE FROM pgsched.store; DELETE FROM pgsched.store_roots")
    db.execute("SELECT pgsched.restored()")
    after = [value(db, "SELECT pgsched.kv_put('r/x', '1')") for _ in range(6)]
    assert min(after) > max(before)
    assert value(db, "SELECT pgsched.kv_put('r/x', '2', %s)", before[-1]) is None


def test_the_next_in_line_is_told_when_the_first_of_those_that_wait_leaves(db: Db, connect: Callable[..., Db]) -> None:
    """Only the first of them looks when the lease of a holder ends."""
    ear, tokens, sessions = connect(autocommit=True), [uuid4() for _ in range(4)], [session(db) for _ in range(4)]
    for token, own in zip(tokens, sessions, strict=True):
        db.execute("SELECT pgsched.lock_acquire('z', %s, session => %s, wait => '1 hour')", [token, own])
        number = value(db, "SELECT id FROM pgsched.sessions WHERE token = %s", own)
        ear.execute(f"LISTEN pgsched_session_{number}".encode())
    assert value(db, "SELECT pgsched.lock_release('z', %s)", tokens[3]) is True  # the last one: nobody is told
    assert value(db, "SELECT pgsched.lock_release('z', %s)", tokens[1]) is True
    (told,) = ear.notifies(timeout=5, stop_after=1)
    assert told.payload == str(tokens[2])[:18]
