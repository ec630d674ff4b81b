"""The places of a pool: never more connections than its size, and the longest waiter is served first."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from pgsched.db.connection import shared_pool
from pgsched.db.connection.places import Places
from pgsched.db.connection.shared_pool import SharedPool
from pgsched.errors import DatabaseUnreachable, PgschedError
from tests.support.waiting import wait_until


class Caller:
    def __init__(self) -> None:
        self.served: list[tuple[str | None, PgschedError | None]] = []

    def deliver(self, conn: str | None, error: PgschedError | None) -> None:
        self.served.append((conn, error))


def test_places_are_limited_and_the_last_used_connection_is_used_again() -> None:
    places: Places[str] = Places(2)
    assert [places.enter() for _ in range(3)] == [True, True, False]
    assert (places.leave("a", 1.0), places.leave("b", 2.0)) == (None, None)
    assert places.enter() and places.pop_idle() == "b"
    assert places.pop_expired(1.0) == ["a"]
    assert places.pop_idle() is None


def test_waiters_get_places_in_their_order_and_nobody_overtakes_them() -> None:
    places: Places[str] = Places(1)
    first, second = Caller(), Caller()
    assert places.enter()
    places.waiters.extend([first, second])
    places.leave("a", 1.0)
    assert (first.served, second.served, list(places.idle)) == ([("a", None)], [], [])
    assert not places.enter()
    places.leave(None, 2.0)
    assert second.served == [(None, None)]
    places.leave("c", 3.0)
    assert places.enter() and places.pop_idle() == "c"


def test_all_who_wait_get_the_error_of_a_connection_that_could_not_be_opened() -> None:
    places: Places[str] = Places(1)
    caller, error = Caller(), DatabaseUnreachable("gone")
    places.enter()
    places.waiters.append(caller)
    places.fail(error)
    assert caller.served == [(None, error)]
    places.leave(None, 1.0)
    assert places.enter()


def test_who_waits_gets_no_error_while_other_connections_work() -> None:
    """As with a role's CONNECTION LIMIT: only the fourth connection is refused."""
    places: Places[str] = Places(2)
    caller = Caller()
    places.enter()
    places.opened += 1
    places.enter()
    places.waiters.append(caller)
    places.fail(DatabaseUnreachable("too many connections"))
    assert caller.served == []
    places.leave(None, 1.0)
    assert caller.served == [(None, None)]


def test_a_closed_pool_keeps_no_connection() -> None:
    places: Places[str] = Places(2)
    assert places.enter() and places.enter()
    places.leave("a", 1.0)
    assert places.close() == ["a"]
    assert places.leave("b", 2.0) == "b"
    assert not places.idle


def test_patience_begins_anew_when_a_connection_is_given_back() -> None:
    places: Places[str] = Places(1)
    places.enter()
    assert places.seconds_left(100.0, 110.0, 30.0) == 20.0
    places.leave("a", 105.0)
    assert places.seconds_left(100.0, 110.0, 30.0) == 25.0


@pytest.fixture(params=["never", "before"])
def failing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Failing:
    """A pool whose server does not answer, and has never done so, or has done so before."""
    monkeypatch.setattr(shared_pool, "is_idle", lambda conn: conn.open)
    monkeypatch.setattr(shared_pool, "is_alive", lambda conn: False)
    failing = Failing()
    if request.param == "before":
        failing.pool.use(lambda _: None)
        failing.answers = False
        failing.go_on.set()
        with pytest.raises(DatabaseUnreachable):
            failing.pool.use(lambda _: None)
    failing.answers = False
    failing.opening, failing.go_on = threading.Event(), threading.Event()
    return failing


class Failing:
    def __init__(self) -> None:
        self.answers = True
        self.calls = 0
        self.opening, self.go_on = threading.Event(), threading.Event()
        self.pool = SharedPool(self.connect, 1)

    def connect(self) -> Any:
        self.calls += 1
        if self.answers:
            return Fake()
        self.opening.set()
        self.go_on.wait(30)
        raise DatabaseUnreachable("no server")


class Fake:
    open = True

    def close(self) -> None:
        self.open = False


def test_all_who_wait_learn_at_once_that_there_is_no_server(failing: Failing) -> None:
    """Otherwise each of them would try in vain in its turn, and the last one would wait for very long."""
    errors: list[str] = []

    def client() -> None:
        with pytest.raises(DatabaseUnreachable) as found:
            failing.pool.use(lambda _: None)
        errors.append(str(found.value))

    before = failing.calls
    first = threading.Thread(target=client)
    first.start()
    assert failing.opening.wait(10)
    others = [threading.Thread(target=client) for _ in range(5)]
    for thread in others:
        thread.start()
    wait_until(lambda: len(failing.pool._places.waiters) == 5, what="five waiting threads")
    failing.go_on.set()
    for thread in (first, *others):
        thread.join(10)
    assert (errors, failing.calls - before) == (["no server"] * 6, 1)
    failing.pool.close()


def test_a_signal_handler_may_use_the_pool_while_its_thread_is_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a re-entrant lock, the thread would wait for itself."""
    tried: list[str] = []

    def fail() -> Any:
        tried.append("connect")
        raise DatabaseUnreachable("no server")

    pool = SharedPool(fail, 4)

    def use(*_: object) -> None:
        with pytest.raises(DatabaseUnreachable, match="no server"):
            pool.use(lambda _: None)

    enter = Places.enter

    def interrupted(places: Places[Any]) -> bool:
        monkeypatch.setattr(Places, "enter", enter)
        signal.raise_signal(signal.SIGUSR1)
        return enter(places)

    monkeypatch.setattr(Places, "enter", interrupted)
    before = signal.signal(signal.SIGUSR1, use)
    try:
        use()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert tried == ["connect"] * 2
