"""A duty in which the leader loses its session twice in a row is left undone for a while, whatever the cause."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from pgsched.config import LeaderSettings
from pgsched.db.queries.leader import set_aside
from pgsched.leader import backfill, election
from pgsched.leader.election import Leader
from tests.support.db.poisoning import add_backfills
from tests.support.waiting import wait_until

pytestmark = pytest.mark.pg14


NOTED = "SELECT tries FROM pgsched.set_aside WHERE (duty, row_id) = ('backfills', 'session')"
SLOTS = "SELECT count(*) FROM pgsched.runs WHERE origin = 'schedule'"


def stand_still(_: psycopg.Connection) -> None:
    time.sleep(2.0)


def end_backend(conn: psycopg.Connection) -> None:
    conn.execute("SELECT pg_terminate_backend(pg_backend_pid())")


def lose_backend(conn: psycopg.Connection) -> None:
    """Close the connection without a message, as a killed backend does."""
    with socket.socket(fileno=conn.fileno()) as connection:
        connection.shutdown(socket.SHUT_RDWR)
        connection.detach()


def lose_in_call(monkeypatch: pytest.MonkeyPatch, number: int, lose: Callable[[psycopg.Connection], None]) -> list[int]:
    """Lose the session at the start of this call of the duty `backfills`; return a list that grows with each call."""
    calls: list[int] = []
    work = backfill.run_backfills

    def unlucky(conn: psycopg.Connection, *rest: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            lose(conn)
        return work(conn, *rest)

    monkeypatch.setattr(backfill, "run_backfills", unlucky)
    return calls


@contextmanager
def leading(dsn: str, session_timeout_s: float = 1.0) -> Iterator[Leader]:
    leader = Leader(dsn, LeaderSettings(election_every_s=0.1, session_timeout_s=session_timeout_s), "leader")
    thread = threading.Thread(target=leader.run, daemon=True)
    thread.start()
    try:
        yield leader
    finally:
        leader.stop()
        thread.join(10)


@pytest.mark.long
@pytest.mark.parametrize("lose", [stand_still, end_backend, lose_backend])
def test_a_duty_that_costs_two_sessions_in_a_row_is_left_undone(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, lose: Callable[[psycopg.Connection], None]
) -> None:
    add_backfills(db, 1)
    calls: list[float] = []

    def costly(conn: psycopg.Connection, *_: object) -> Any:
        calls.append(time.monotonic())
        lose(conn)
        return conn.execute("SELECT").fetchall()

    monkeypatch.setattr(backfill, "run_backfills", costly)
    with leading(dsn) as leader:
        wait_until(lambda: db.execute(NOTED.encode()).fetchone() == (2,), 30, "the second session to be lost")
        db.execute("INSERT INTO pgsched.jobs (name, task) VALUES ('once', 't')")
        wait_until(lambda: db.execute(SLOTS.encode()).fetchone() == (1,), 15, "the slot")
        wait_until(lambda: leader.heard_at is not None and leader.heard_at > calls[-1] + 3.0, 15, "further rounds")
        assert len(calls) == 2


def test_a_duty_that_succeeds_after_a_lost_session_is_not_at_fault(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was restarted in the middle of the duty, which can happen in any duty."""
    add_backfills(db, 1)
    lose_in_call(monkeypatch, 1, end_backend)
    with leading(dsn, session_timeout_s=10.0):
        begun = "SELECT count(*) > 0 FROM pgsched.runs WHERE origin = 'backfill'"
        wait_until(lambda: db.execute(begun.encode()).fetchone() == (True,), 15, "the backfill to begin")
        wait_until(lambda: db.execute(NOTED.encode()).fetchone() is None, 15, "the note to go")


@pytest.mark.parametrize(("tries", "in_s", "then", "waits_s"), [
    (1, -500, 2, 60), (2, -500, 3, 300), (3, -500, 4, 1800), (9, -500, 10, 1800), (3, -700, 1, 0), (1, -700, 1, 0),
])  # fmt: skip
def test_only_losses_in_a_row_count(db: psycopg.Connection, tries: int, in_s: int, then: int, waits_s: int) -> None:
    db.execute("INSERT INTO pgsched.set_aside (duty, row_id, error, tries, since, next_at)"
               " VALUES ('tick', 'session', 'e', %s, now() - interval '1 day', now() + make_interval(secs => %s))",
               [tries, in_s])  # fmt: skip
    set_aside.session_lost(db, "tick", "f")
    (found,) = set_aside.list_set_aside(db)
    assert (found.error, found.tries) == ("f", then)
    assert found.in_s == pytest.approx(waits_s, abs=5)


def test_a_loss_after_the_duty_succeeded_is_the_first_in_a_row(db: psycopg.Connection) -> None:
    """The former leader may record its loss only after this leader has begun and read the losses."""
    for tries in (1, 2):
        set_aside.session_lost(db, "tick", "cut off")
        assert [row.tries for row in set_aside.list_set_aside(db)] == [tries]
    set_aside.session_lost(db, "tick", "cut off", went_through=True)
    (found,) = set_aside.list_set_aside(db)
    assert (found.tries, found.in_s <= 0) == (1, True)


def test_a_loss_recorded_late_stops_no_duty_that_has_succeeded_since(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two leaders in turn are cut off in one duty. The first records its loss after the second has done the duty."""
    add_backfills(db, 1)

    def lose(conn: psycopg.Connection) -> None:
        set_aside.session_lost(db, "backfills", "of the leader before")
        end_backend(conn)

    calls = lose_in_call(monkeypatch, 2, lose)
    with leading(dsn, session_timeout_s=10.0):
        wait_until(lambda: len(calls) > 2, 20, "the duty to be done after the second loss")
    assert db.execute(NOTED.encode()).fetchone() in (None, (1,))


def test_errors_far_apart_end_no_process(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only errors in a row show that this process cannot lead."""
    rounds: list[int] = []
    leader = Leader(dsn, LeaderSettings(), "leader", on_fatal=lambda error: pytest.fail(str(error)))

    def broken(_: object) -> float:
        rounds.append(1)
        if len(rounds) > 2 * election.UNFORESEEN:
            leader.stop()
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(election.LeaderLoop, "run_once", broken)
    monkeypatch.setattr(election, "back_off_s", lambda *_: 0.01)
    monkeypatch.setattr(election, "ERRORS_RESET_S", 0.0)
    leader.run()
    assert len(rounds) > 2 * election.UNFORESEEN
