"""What item queues promise by row locks, checks and hints: each test takes one out, and shows what happens then."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.logins import Logins, one
from tests.support.recipes.calls import function_without, refused, session
from tests.support.recipes.items import end_sessions, put, waits
from tests.support.waiting import wait_until

Db = psycopg.Connection[Any]
Connect = Callable[..., Db]
WITH_AND_WITHOUT = pytest.mark.parametrize("guarded", [True, False], ids=["with", "without"])
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
GET = "SELECT id FROM pgsched.item_get('q', %s, %s)"


def got(db: Db, mine: UUID, token: UUID | None = None) -> int | None:
    """Get an item for a session; return its id."""
    found: int | None = one(db, GET, token or uuid4(), mine)
    return found


@WITH_AND_WITHOUT
def test_without_skip_locked_a_consumer_waits_for_another(db: Db, connect: Connect, guarded: bool) -> None:
    if not guarded:
        function_without(db, "item_take", "ORDER BY i.available_at, i.id LIMIT 1 FOR UPDATE SKIP LOCKED",
                         "ORDER BY i.available_at, i.id LIMIT 1 FOR UPDATE")  # fmt: skip
    put(db, 2)
    mine, its = session(db), session(db)
    with connect(autocommit=False) as other:
        first = got(other, its)
        db.execute("SET lock_timeout = '300 ms'")
        if guarded:
            assert first != got(db, mine) is not None
        else:
            assert refused(db, "SELECT pgsched.item_get('q', gen_random_uuid(), %s)", mine) == "55P03"


@WITH_AND_WITHOUT
def test_without_the_row_lock_two_consumers_get_one_item(db: Db, connect: Connect, guarded: bool) -> None:
    if not guarded:
        function_without(db, "item_take", "ORDER BY i.available_at, i.id LIMIT 1 FOR UPDATE SKIP LOCKED",
                         "ORDER BY i.available_at, i.id LIMIT 1")  # fmt: skip
    put(db)
    mine, its = session(db), session(db)
    with connect(autocommit=False) as other, ThreadPoolExecutor(1) as pool:
        first = got(other, its)
        second = pool.submit(got, db, mine)
        with connect() as third:
            wait_until(lambda: second.done() or one(third, BLOCKED), 10, "the second call")
        other.commit()
        assert second.result(20) == (None if guarded else first)


def be_consumers(db: Db) -> None:
    """Note all sessions as consumers, and let no call look for dead ones by itself."""
    db.execute("INSERT INTO pgsched.item_consumers SELECT q.id, s.id FROM pgsched.item_queues q, pgsched.sessions s")
    db.execute("UPDATE pgsched.item_queues SET looked_at = clock_timestamp() + interval '50 s'")


def end(db: Db, token: UUID) -> None:
    """End a session, and let the next call look for dead consumers."""
    db.execute("UPDATE pgsched.sessions SET ended_at = clock_timestamp() WHERE token = %s", [token])
    db.execute("UPDATE pgsched.item_queues SET looked_at = '-infinity'")


@WITH_AND_WITHOUT
def test_without_its_lock_a_consumer_is_forgotten_while_it_gets_an_item(
    db: Db, connect: Connect, guarded: bool
) -> None:
    """Its session has ended meanwhile. Then nobody would ever find the item again."""
    if not guarded:
        row = "WHERE c.queue = q.id AND c.session = s.id"
        function_without(db, "item_get", f"{row} FOR KEY SHARE;", f"{row};")
    mine, its = session(db, "1 day"), session(db, "1 day")
    put(db)
    be_consumers(db)
    with connect(autocommit=False) as slow:
        assert got(slow, mine) is not None
        end(db, mine)
        assert got(db, its) is None
        slow.commit()
    end(db, mine)
    assert (got(db, its) is not None) is guarded


@WITH_AND_WITHOUT
def test_without_the_check_of_the_snapshot_a_consumer_is_forgotten_that_has_an_item(
    db: Db, connect: Connect, guarded: bool
) -> None:
    """In the older snapshot it has ended, and has nothing."""
    if not guarded:
        function_without(db, "item_look", "current_setting('transaction_isolation') <> 'read committed' OR ")
    mine, its = session(db, "1 day"), session(db, "1 day")
    put(db)
    db.execute("UPDATE pgsched.sessions SET ended_at = clock_timestamp() WHERE token = %s", [mine])
    be_consumers(db)
    with connect(autocommit=False) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("SELECT FROM pgsched.items")
        db.execute("UPDATE pgsched.sessions SET ended_at = NULL WHERE token = %s", [mine])
        assert got(db, mine) is not None
        old.execute("SELECT pgsched.item_look(id) FROM pgsched.item_queues")
        old.commit()
    end(db, mine)
    assert (got(db, its) is not None) is guarded


@pytest.mark.parametrize(
    ("function", "guard", "instead", "locked"),
    [
        ("item_look", "FOR NO KEY UPDATE SKIP LOCKED", "FOR NO KEY UPDATE", "item_queues"),
        ("item_look", "FOR UPDATE OF c SKIP LOCKED", "FOR UPDATE OF c", "item_consumers"),
        ("item_look", "FOR UPDATE SKIP LOCKED);", "FOR UPDATE);", "sessions"),
        ("item_take_back", "LIMIT 10000 FOR UPDATE SKIP LOCKED", "LIMIT 10000 FOR UPDATE", "items"),
    ],
)
@WITH_AND_WITHOUT
def test_without_skip_locked_a_look_for_dead_holders_waits(
    db: Db, connect: Connect, function: str, guard: str, instead: str, locked: str, guarded: bool
) -> None:
    """For another look, a call of the holder, its renewal, or the transaction in which it consumes."""
    if not guarded:
        function_without(db, function, guard, instead)
    mine = session(db)
    put(db)
    got(db, mine)
    db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp()")
    with connect(autocommit=False) as other:
        other.execute(f"SELECT FROM pgsched.{locked} FOR UPDATE".encode())
        db.execute("SET lock_timeout = '300 ms'")
        look = "SELECT pgsched.item_look(id) FROM pgsched.item_queues"
        assert refused(db, look) == ("not refused" if guarded else "55P03")


@WITH_AND_WITHOUT
def test_without_skip_locked_the_end_of_a_session_waits_for_who_looks(db: Db, connect: Connect, guarded: bool) -> None:
    if not guarded:
        function_without(db, "item_end_session", " SKIP LOCKED")
    mine = session(db)
    put(db)
    got(db, mine)
    with connect(autocommit=False) as other:
        other.execute("SELECT FROM pgsched.item_consumers FOR UPDATE")
        db.execute("SET lock_timeout = '300 ms'")
        assert refused(db, "SELECT pgsched.session_end(%s)", mine) == ("not refused" if guarded else "55P03")


# ---- who consumes


@pytest.mark.parametrize(
    ("guard", "token", "lives"),
    [
        ("AND i.token = g.token ", False, True),
        ("AND s.ended_at IS NULL AND s.lease_until > clock_timestamp()", True, False),
    ],
)
@WITH_AND_WITHOUT
def test_without_its_token_and_a_session_that_lives_somebody_else_consumes(
    db: Db, guard: str, token: bool, lives: bool, guarded: bool
) -> None:
    if not guarded:
        function_without(db, "item_consume_many", guard, "")
    mine, holder = session(db), uuid4()
    put(db)
    item = got(db, mine, holder)
    if not lives:
        end_sessions(db)
    consumed = one(db, "SELECT pgsched.item_consume(%s, %s)", item, holder if token else uuid4())
    assert consumed is not guarded


@WITH_AND_WITHOUT
def test_without_the_owner_a_token_is_of_use_to_other_roles(logins: Logins, db: Db, guarded: bool) -> None:
    if not guarded:
        function_without(db, "item_consume_many", "AND s.owner = me\n", "\n")
    alice, bob, holder = logins.connect("alice"), logins.connect("bob"), uuid4()
    put(alice)
    item = got(alice, session(alice), holder)
    assert one(bob, "SELECT pgsched.item_consume(%s, %s)", item, holder) is not guarded


@WITH_AND_WITHOUT
def test_without_the_check_of_the_session_another_role_gets_items_with_it(
    logins: Logins, db: Db, guarded: bool
) -> None:
    if not guarded:
        function_without(db, "item_get", "IF s.owner <> me THEN", "IF false THEN")
    alice, bob = logins.connect("alice"), logins.connect("bob")
    mine = session(alice)
    put(bob)
    get = "SELECT pgsched.item_get('q', gen_random_uuid(), %s)"
    assert refused(bob, get, mine) == ("42501" if guarded else "not refused")


# ---- hints: who is told, and when to look though nothing was told


@WITH_AND_WITHOUT
def test_without_the_hint_nobody_is_told_of_an_item(db: Db, connect: Connect, guarded: bool) -> None:
    if not guarded:
        function_without(db, "item_put_many", "PERFORM pgsched.item_tell(q.id, cardinality(ids));", "NULL;")
    with connect() as ear:
        ear.execute(f"LISTEN {waits(db, session(db))}".encode())
        put(db)
        assert len(list(ear.notifies(timeout=5 if guarded else 0.2, stop_after=1))) == int(guarded)


@WITH_AND_WITHOUT
def test_without_passing_it_on_an_item_that_is_left_is_told_to_nobody(db: Db, connect: Connect, guarded: bool) -> None:
    if not guarded:
        function_without(db, "item_get", "PERFORM pgsched.item_tell_of_rest(q.id);", "NULL;")
    first, second = session(db), session(db)
    waits(db, first)
    channel = waits(db, second)
    put(db)
    put(db)  # the first session is told of both
    with connect() as ear:
        ear.execute(f"LISTEN {channel}".encode())
        assert got(db, first) is not None
        assert len(list(ear.notifies(timeout=5 if guarded else 0.2, stop_after=1))) == int(guarded)


@WITH_AND_WITHOUT
def test_without_passing_it_on_who_leaves_takes_a_hint_along(db: Db, connect: Connect, guarded: bool) -> None:
    if not guarded:
        function_without(db, "item_leave", "PERFORM pgsched.item_tell_of_rest(left_queue);", "NULL;")
    first, second = session(db), session(db)
    waits(db, first)
    channel = waits(db, second)
    put(db)
    with connect() as ear:
        ear.execute(f"LISTEN {channel}".encode())
        db.execute("SELECT pgsched.item_leave('q', %s, %s)", [uuid4(), first])
        assert len(list(ear.notifies(timeout=5 if guarded else 0.2, stop_after=1))) == int(guarded)


@WITH_AND_WITHOUT
def test_without_look_at_a_call_that_waits_never_gets_what_a_dead_holder_had(db: Db, guarded: bool) -> None:
    """It looks when the lease ends. Nobody tells it: the process that had the item is dead."""
    if not guarded:
        function_without(
            db, "item_get", "CASE WHEN wait THEN pgsched.item_look_at(q.id, s.id) END", "NULL::timestamptz"
        )
    holder, mine = session(db, "1 hour"), session(db, "1 day")
    put(db)
    assert got(db, holder) is not None
    look_at = one(db, "SELECT look_at FROM pgsched.item_get('q', %s, %s, wait => true)", uuid4(), mine)
    lease = one(db, "SELECT lease_until FROM pgsched.sessions WHERE token = %s", holder)
    assert look_at == (lease if guarded else None)


# ---- how much a call moves


@WITH_AND_WITHOUT
def test_without_its_collation_a_call_reads_all_queues_to_find_one(db: Db, guarded: bool) -> None:
    if not guarded:
        text = one(db, "SELECT pg_get_functiondef('pgsched.item_queue_of'::regproc)")
        db.execute(text.replace(' COLLATE "default"', "").encode())
    db.execute("INSERT INTO pgsched.item_queues (name, owner) SELECT n, session_user FROM generate_series(1, 2000) n")
    db.execute("VACUUM ANALYZE pgsched.item_queues")
    read = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'item_queues'"
    with db.transaction():
        one(db, "SELECT pgsched.item_put('2000', '1')")
        assert (one(db, read) < 10) is guarded


@WITH_AND_WITHOUT
def test_a_call_gets_eight_mib_at_most(db: Db, guarded: bool) -> None:
    if not guarded:
        function_without(db, "item_take", "WHERE f.so_far <= room OR f.n = 1 AND chosen = '{}'", "")
    db.execute("SELECT pgsched.item_put_many('q', array_fill(to_jsonb(repeat('x', 1000000)), ARRAY[20]))")
    found = one(db, "SELECT count(*) FROM pgsched.item_get('q', gen_random_uuid(), %s, most => 20)", session(db))
    assert found == (8 if guarded else 20)
