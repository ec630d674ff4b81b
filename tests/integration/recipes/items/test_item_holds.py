"""Item queues: who holds an item, who consumes it, and what becomes of items whose holder has gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import psycopg
import pytest

from pgsched import App, DatabaseUnreachable, InputError, LeaseLost
from pgsched.chaos.site.proxy import Proxy
from pgsched.recipes.items.item_queue import ItemQueue
from tests.support.logins import one
from tests.support.recipes.items import end_sessions, values
from tests.support.waiting import wait_until

Connect = Callable[..., psycopg.Connection]


@pytest.fixture
def queue(app: App) -> ItemQueue:
    return app.item_queue("orders")


@pytest.fixture
def other(dsn: str) -> Iterator[ItemQueue]:
    """The same queue for another process: it has a session of its own."""
    second = App("other", dsn=dsn)
    yield second.item_queue("orders")
    second.close()


# ---- holds


def test_a_held_item_is_handed_out_to_nobody_else(queue: ItemQueue, other: ItemQueue) -> None:
    queue.put_many(["a", "b"])
    held = queue.get(0)
    assert (held.value, held.attempt, held.lost) == ("a", 1, False)
    assert other.get(0).value == "b"
    with pytest.raises(TimeoutError):
        other.get(0)
    held.consume()
    assert queue.counts() == (0, 0, 1)


def test_an_item_that_is_given_back_is_the_first_again(queue: ItemQueue, other: ItemQueue) -> None:
    queue.put_many(["a", "b"])
    queue.get(0).give_back()
    again = other.get(0)
    assert (again.value, again.attempt) == ("a", 1)
    again.give_back(error="it did not work")
    item = queue.get(0)
    assert item.attempt == 2
    item.give_back(delay=3600)
    assert values(queue, 1) == ["b"]
    assert queue.counts() == (0, 1, 0)


def test_an_item_is_handed_out_again_when_the_session_of_its_holder_has_ended(
    queue: ItemQueue, other: ItemQueue, db: psycopg.Connection
) -> None:
    queue.put_many(["a", "b"])
    held = queue.get(0)
    end_sessions(db)
    again = other.get(0)
    assert (again.value, again.attempt) == ("a", 2)
    with pytest.raises(LeaseLost, match="not held any more"):
        held.consume()
    again.consume()
    assert values(other, 1) == ["b"]


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["block ends", "block fails", "loop goes on"])
def test_an_item_of_which_the_database_could_not_be_told_goes_back_later(how: str, dsn: str, other: ItemQueue) -> None:
    other.put("a")
    with Proxy(dsn) as proxy:
        far = App("far", dsn=proxy.dsn)
        queue = far.item_queue("orders", hold=3600)
        item = queue.get(0)

        def cut_off() -> None:
            proxy.refuse()
            proxy.cut()

        with pytest.raises(ValueError if how == "block fails" else DatabaseUnreachable):
            if how == "loop goes on":
                item.give_back()
                for _ in queue:
                    cut_off()
            with item:
                cut_off()
                if how == "block fails":
                    raise ValueError("no luck")
        proxy.heal()
        again = other.get(60)
        assert (again.value, again.attempt) == ("a", 2 if how == "block fails" else 1)
        far.close()


def test_a_holder_whose_time_is_over_does_not_consume(queue: ItemQueue, db: psycopg.Connection) -> None:
    """Also where nobody has taken the item yet."""
    queue.put("a")
    held = queue.get(0)
    db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() - interval '1 ms'")
    with pytest.raises(LeaseLost):
        held.consume()
    assert queue.counts() == (0, 0, 1)
    assert held.is_open is False


def test_a_lost_session_is_seen_by_the_holder(queue: ItemQueue, db: psycopg.Connection) -> None:
    queue.put("a")
    held = queue.get(0, hold=1)
    end_sessions(db)
    wait_until(lambda: held.lost, what="the loss")
    with pytest.raises(LeaseLost):
        held.extend()


@pytest.mark.long
def test_a_hold_lasts_while_the_process_lives(queue: ItemQueue, other: ItemQueue, db: psycopg.Connection) -> None:
    queue.put("a")
    held = queue.get(0, hold=1)
    first = one(db, "SELECT lease_until FROM pgsched.sessions")
    wait_until(
        lambda: one(db, "SELECT lease_until > %s + interval '1 s' FROM pgsched.sessions", first), what="renewals"
    )
    with pytest.raises(TimeoutError):
        other.get(0)
    held.consume()


def test_to_extend_a_hold_renews_its_session_at_once(queue: ItemQueue, db: psycopg.Connection) -> None:
    queue.put("a")
    held = queue.get(0, hold=600)
    before = one(db, "SELECT lease_until FROM pgsched.sessions")
    held.extend()
    assert one(db, "SELECT lease_until FROM pgsched.sessions") > before


def test_closing_the_app_frees_its_items_at_once(dsn: str, queue: ItemQueue) -> None:
    queue.put_many(["a", "b"])
    leaver = App("leaver", dsn=dsn)
    leaver.item_queue("orders", hold=3600).get(0)
    leaver.close()
    assert queue.counts() == (2, 0, 0)


def test_an_item_is_handed_out_again_in_its_place_among_others(
    queue: ItemQueue, other: ItemQueue, db: psycopg.Connection
) -> None:
    queue.put_many(["a", "b", "c", "d"])
    queue.get_many(2, 0)
    end_sessions(db)
    assert values(other, 4) == ["a", "b", "c", "d"]


def test_a_hold_that_begins_while_the_session_ends_is_found_again(
    app: App, queue: ItemQueue, db: psycopg.Connection, connect: Connect
) -> None:
    """Nobody forgets the session while one of its calls is under way."""
    queue.put("a")
    slow, session, token = connect(autocommit=False), uuid4(), uuid4()
    db.execute("SELECT pgsched.session_open(%s, '1 hour')", [session])
    assert db.execute("SELECT id FROM pgsched.item_get('empty', %s, %s)", [token, session]).fetchall() == [(None,)]
    db.execute("UPDATE pgsched.item_consumers SET queue = (SELECT id FROM pgsched.item_queues WHERE name = 'orders')")
    db.execute("UPDATE pgsched.item_queues SET looked_at = clock_timestamp()")  # the slow call does not look
    assert slow.execute("SELECT value FROM pgsched.item_get('orders', %s, %s)", [token, session]).fetchall() == [("a",)]
    end_sessions(db)
    with pytest.raises(TimeoutError):
        queue.get(0)  # looks for sessions that have ended
    slow.commit()
    end_sessions(db)
    assert queue.get(0).value == "a"


def test_an_older_snapshot_forgets_no_holder(
    queue: ItemQueue, other: ItemQueue, db: psycopg.Connection, connect: Connect
) -> None:
    """It does not see what the holder has got since, so it must not take its row away."""
    old = connect(autocommit=False)
    queue.put("a")
    queue.get(0).give_back()
    old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    old.execute("SELECT FROM pgsched.items")
    queue.get(0)
    db.execute("UPDATE pgsched.item_queues SET looked_at = '-infinity'")
    db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() - interval '1 ms'")
    old.execute("SELECT pgsched.item_look(id) FROM pgsched.item_queues")
    old.commit()
    end_sessions(db)
    assert other.get(10).value == "a"


def test_an_ended_session_gets_nothing(queue: ItemQueue, db: psycopg.Connection) -> None:
    queue.put("a")
    session = uuid4()
    db.execute("SELECT pgsched.session_open(%s, '1 hour')", [session])
    db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() - interval '1 ms'")
    with pytest.raises(psycopg.Error, match="the session has ended"):
        db.execute("SELECT FROM pgsched.item_get('orders', %s, %s)", [uuid4(), session])


# ---- consume


def test_only_the_holder_consumes(queue: ItemQueue, db: psycopg.Connection) -> None:
    queue.put("a")
    held = queue.get(0)
    for call in ("item_consume(%s, %s)", "item_give_back(%s, %s)"):
        assert one(db, f"SELECT pgsched.{call}", held.id, uuid4()) is False
    assert one(db, "SELECT pgsched.item_extend(%s, %s)", held.id, uuid4()) is None
    held.consume()
    with pytest.raises(InputError, match="it was consumed"):
        held.consume()


def test_a_block_consumes_its_item_at_the_end(queue: ItemQueue) -> None:
    queue.put_many(["a", "b"])
    with queue.get(0) as item:
        assert item.value == "a"
    with queue.get(0) as item:
        item.consume()
    assert queue.count() == 0


def test_a_block_that_fails_gives_its_item_back(queue: ItemQueue, db: psycopg.Connection) -> None:
    queue.put("a")
    with pytest.raises(ValueError, match="no"), queue.get(0):
        raise ValueError("no")
    assert one(db, "SELECT error FROM pgsched.items") == "ValueError: no"
    with pytest.raises(KeyboardInterrupt), queue.get(0) as item:
        assert item.attempt == 2
        raise KeyboardInterrupt  # the end of the program is no failed attempt
    assert queue.get(0).attempt == 2


def test_a_failed_item_is_kept_back_for_the_retry_delay(app: App) -> None:
    queue = app.item_queue("orders", retry_delay="1 hour")
    queue.put_many(["a", "b"])
    with pytest.raises(ValueError, match="no"), queue.get(0):
        raise ValueError("no")
    assert values(queue, 1) == ["b"]
    assert queue.counts() == (0, 1, 0)


def test_a_put_is_part_of_the_caller_s_transaction(queue: ItemQueue, connect: Connect) -> None:
    mine = connect(autocommit=False)
    queue.put("a", connection=mine)
    queue.put_many(["b"], connection=mine)
    assert queue.count() == 0
    mine.rollback()
    assert queue.count() == 0
    queue.put("c", connection=mine)
    mine.commit()
    assert values(queue, 1) == ["c"]


def test_to_consume_is_part_of_the_caller_s_transaction(queue: ItemQueue, other: ItemQueue, connect: Connect) -> None:
    mine = connect(autocommit=False)
    queue.put_many(["a", "b"])
    held = queue.get(0)
    held.consume(connection=mine)
    mine.rollback()
    held.consume(connection=mine)  # again: it is held as before
    mine.commit()
    assert queue.counts() == (1, 0, 0)
    with pytest.raises(ValueError, match="no"), queue.get(0) as item:
        item.consume(connection=mine)
        mine.rollback()
        raise ValueError("no")
    assert other.get(0).attempt == 2


def test_an_item_whose_end_is_under_way_goes_to_nobody_else(
    queue: ItemQueue, other: ItemQueue, db: psycopg.Connection, connect: Connect
) -> None:
    """Even if the session ends before the transaction does: what it writes is written by the holder."""
    mine = connect(autocommit=False)
    queue.put("a")
    queue.get(0).consume(connection=mine)
    end_sessions(db)
    with pytest.raises(TimeoutError):
        other.get(0)
    mine.commit()
    end_sessions(db)
    with pytest.raises(TimeoutError):
        other.get(0)
    assert other.count() == 0


def test_a_lost_answer_is_asked_for_again(db: psycopg.Connection, queue: ItemQueue) -> None:
    queue.put_many(["a", "b", "c"])
    session, token = uuid4(), uuid4()
    db.execute("SELECT pgsched.session_open(%s)", [session])
    get = "SELECT id, value FROM pgsched.item_get('orders', %s, %s, most => 2)"
    first = db.execute(get, [token, session]).fetchall()
    assert [value for _, value in first] == ["a", "b"]
    assert db.execute(get, [token, session]).fetchall() == first
    consume = "SELECT pgsched.item_consume(%s, %s, %s)"
    assert [one(db, consume, first[0][0], token, session) for _ in range(2)] == [True, True]
    assert one(db, consume, first[0][0], token, uuid4()) is False  # somebody else: not known
    assert db.execute(get, [token, session]).fetchall() == first[1:]


def test_an_item_that_another_holds_is_not_taken_for_a_lost_answer(db: psycopg.Connection, queue: ItemQueue) -> None:
    queue.put("a")
    session, token = uuid4(), uuid4()
    db.execute("SELECT pgsched.session_open(%s)", [session])
    item = one(db, "SELECT id FROM pgsched.item_get('orders', %s, %s)", token, session)
    db.execute("SELECT pgsched.item_give_back(%s, %s)", [item, token])
    queue.get(0)
    assert one(db, "SELECT pgsched.item_consume(%s, %s, %s)", item, token, session) is False


def test_without_a_session_each_call_has_its_own(db: psycopg.Connection, queue: ItemQueue) -> None:
    queue.put_many(["a", "b"])
    tokens: list[UUID] = [uuid4(), uuid4()]
    got = [one(db, "SELECT id FROM pgsched.item_get('orders', %s, hold => '1 hour')", token) for token in tokens]
    assert one(db, "SELECT count(*) FROM pgsched.sessions") == 2
    assert one(db, "SELECT pgsched.item_consume(%s, %s)", got[0], tokens[0]) is True
    assert one(db, "SELECT pgsched.item_give_back(%s, %s)", got[1], tokens[1]) is True
    assert one(db, "SELECT count(*) FROM pgsched.sessions") == 0
    assert values(queue, 1) == ["b"]
