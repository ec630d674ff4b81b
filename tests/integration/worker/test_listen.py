"""Notifications are heard at once: also those that come with an answer, and those after a lost connection."""

from __future__ import annotations

import asyncio
import select
import threading
import time
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.config import LeaderSettings
from pgsched.db.connection.connect import aconnect
from pgsched.errors import PgschedError
from pgsched.leader.election import Leader
from pgsched.worker import listener as listening
from pgsched.worker.listener import listen, pass_on
from tests.support.waiting import wait_until
from tests.support.workers import becomes, play
from tests.support.working import add, all_ended, work

pytestmark = pytest.mark.scram

MINE = "application_name LIKE 'pgsched listen%' AND datname = current_database()"


def test_queues_and_requests_to_cancel_are_passed_on(dsn: str, db: psycopg.Connection) -> None:
    queues, cancels = list[str | None](), list[None]()

    async def scene() -> None:
        task = asyncio.create_task(listen(dsn, queues.append, lambda: cancels.append(None)))
        await becomes(lambda: queues == [None], "it to listen")
        db.execute("SELECT pg_notify('pgsched_runs', 'mark'), pg_notify('pgsched_cancel', ''),"
                   " pg_notify('pgsched_cancel', 'anything'), pg_notify('pgsched_runs', '')")  # fmt: skip
        await becomes(lambda: len(queues) == 3 and len(cancels) == 2, "all to be heard")
        assert queues == [None, "mark", ""]
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    play(scene)
    ended = f"SELECT count(*) = 0 FROM pg_stat_activity WHERE {MINE}"
    wait_until(lambda: (db.execute(ended).fetchone() or (False,))[0], 10, "its session to end")


def is_readable(conn: psycopg.AsyncConnection[Any]) -> bool:
    """Check whether bytes from the server have arrived that libpq has not read."""
    return bool(select.select([conn.fileno()], [], [], 0)[0])


def test_many_notifications_at_once_are_all_heard_and_delay_no_other_work(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "AT_ONCE", 10)
    heard = list[str]()

    async def scene() -> None:
        async with await aconnect(dsn, purpose="listen") as conn:
            await conn.execute("LISTEN pgsched_runs")
            db.execute("SELECT count(pg_notify('pgsched_runs', n::text)) FROM generate_series(1, 1000) n")
            await becomes(lambda: is_readable(conn), "a notification to arrive")
            conn.pgconn.consume_input()
            task = asyncio.create_task(pass_on(conn, lambda _, payload: heard.append(payload)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert 10 <= len(heard) < 1000
            await becomes(lambda: len(heard) == 1000, "the rest")
            task.cancel()
            await asyncio.wait({task})

    play(scene)


def test_a_disconnected_listener_reports_the_gap_and_listens_again(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues, tries = list[str | None](), list[int]()
    really = listening.aconnect

    async def counted(*args: Any, **options: Any) -> Any:
        tries.append(1)
        return await really(*args, **options)

    monkeypatch.setattr(listening, "aconnect", counted)

    async def scene() -> None:
        task = asyncio.create_task(listen(dsn, queues.append, lambda: None))
        await becomes(lambda: queues == [None], "it to listen")
        db.execute(f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE {MINE}")
        await becomes(lambda: queues == [None] * 3, "it to say that it does not listen, and to listen again")
        db.execute("SELECT pg_notify('pgsched_runs', 'mail')")
        await becomes(lambda: queues[3:] == ["mail"], "the next one")
        assert len(tries) == 2
        task.cancel()
        await asyncio.wait({task})

    play(scene)


def test_a_listener_that_cannot_connect_reports_each_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """No notification reaches the worker then, so it must look for runs itself: worker/claiming/polling.py."""
    queues = list[str | None]()

    async def refused(*_: Any, **__: Any) -> Any:
        raise psycopg.OperationalError("too many clients")

    monkeypatch.setattr(listening, "aconnect", refused)
    monkeypatch.setattr(listening, "back_off_s", lambda *_: 0.01)

    async def scene() -> None:
        task = asyncio.create_task(listen("", queues.append, lambda: None))
        await becomes(lambda: len(queues) >= 3, "three tries")
        task.cancel()
        await asyncio.wait({task})

    play(scene)
    assert set(queues) == {None}


def test_a_notification_that_came_with_an_answer_is_heard(dsn: str, db: psycopg.Connection) -> None:
    """By then the socket has nothing left to read."""
    heard = list[tuple[str, str]]()

    async def scene() -> None:
        async with await aconnect(dsn, purpose="listen") as conn:
            await conn.execute("LISTEN pgsched_runs")
            db.execute("SELECT pg_notify('pgsched_runs', 'mail')")
            await becomes(lambda: is_readable(conn), "a notification to arrive")
            conn.pgconn.consume_input()
            task = asyncio.create_task(pass_on(conn, lambda *one: heard.append(one)))
            await becomes(lambda: heard, "what had come")
            task.cancel()
            await asyncio.wait({task})

    play(scene)
    assert heard == [("pgsched_runs", "mail")]


def test_an_error_in_the_callback_ends_the_listener(dsn: str, db: psycopg.Connection) -> None:
    """The error is not lost in the event loop."""

    def broken(*_: str) -> None:
        raise ValueError("a bug")

    async def scene() -> None:
        async with await aconnect(dsn, purpose="listen") as conn:
            await conn.execute("LISTEN pgsched_runs")
            task = asyncio.create_task(pass_on(conn, broken))
            await asyncio.sleep(0)  # it reads the socket from now on
            db.execute("SELECT pg_notify('pgsched_runs', 'mail')")
            with pytest.raises(ValueError, match="a bug"):
                await task

    play(scene)


@pytest.mark.parametrize("channel", ["pgsched_runs", "pgsched_cancel", "pgsched_leader", "pgsched_election"])
def test_a_worker_and_a_leader_survive_any_notification(channel: str, dsn: str, db: psycopg.Connection) -> None:
    app, ends = App("test", dsn=dsn), list[PgschedError]()
    app.task(name="it")(lambda: None)
    leader = Leader(dsn, LeaderSettings(), "test", on_fatal=ends.append)
    thread = threading.Thread(target=leader.run, daemon=True)
    thread.start()
    wait_until(lambda: leader.term is not None, 20, "it to lead")

    def is_done() -> bool:
        if not db.execute(f"SELECT FROM pg_stat_activity WHERE {MINE} AND query = 'LISTEN pgsched_cancel'").rowcount:
            return False
        for payload in ("\u00b2", "9" * 5000, "x" * 7999, "a b\n'\";%s\\", "\U0001f600", ""):
            db.execute("SELECT pg_notify(%s, %s)", [channel, payload])
        time.sleep(0.2)
        add(db, "task", "it")
        wait_until(lambda: all_ended(db), 10, "the run")
        return True

    work(dsn, app, is_done)
    assert db.execute("SELECT state FROM pgsched.runs").fetchall() == [("succeeded",)]
    assert thread.is_alive() and leader.term is not None
    leader.stop()
    thread.join(10)
    assert not ends
