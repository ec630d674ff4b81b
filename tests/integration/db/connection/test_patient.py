"""No call waits for ever for a server that has stopped answering.

A connection attempt that fails leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import waiting
from psycopg.waiting import Ready, Wait

from pgsched import App
from pgsched.chaos.site.proxy import Proxy
from pgsched.db.connection import bounded, pooler
from pgsched.db.connection import connect as connecting
from pgsched.db.connection.bounded import AsyncPatientConnection, PatientConnection, Unanswered
from pgsched.db.connection.connect import aconnect, connect
from pgsched.db.connection.failures import Reaction, classify
from pgsched.errors import DatabaseUnreachable
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scram


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with Proxy(dsn) as running:
        yield running


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the extra time for an answer from seconds to a tenth of a second."""
    monkeypatch.setattr(bounded, "MARGIN_S", 0.1)


def test_an_unanswered_statement_fails_and_closes_its_connection(proxy: Proxy) -> None:
    conn = connect(proxy.dsn, timeout_s=0.5)
    proxy.silence("down")
    with pytest.raises(Unanswered) as raised:
        conn.execute("SELECT 1")
    assert conn.closed, "an answer that comes late must not be taken for that to the next statement"
    assert classify(raised.value) is Reaction.RECONNECT


@pytest.mark.parametrize("call", [1, 2])
def test_an_interrupt_at_any_point_of_the_wait_leaves_no_running_statement(
    dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: int
) -> None:
    calls = 0

    def monotonic() -> float:
        nonlocal calls
        calls += 1
        if calls == call:
            raise KeyboardInterrupt
        return time.monotonic()

    conn = connect(dsn)
    monkeypatch.setattr(bounded, "time", SimpleNamespace(monotonic=monotonic))
    with caplog.at_level("WARNING", "psycopg"), pytest.raises(KeyboardInterrupt), conn:
        conn.execute("SELECT pg_sleep(20)")
    assert caplog.messages == []
    assert conn.closed


def test_an_unanswered_async_statement_fails_and_closes_its_connection(proxy: Proxy) -> None:
    async def ask() -> None:
        conn = await aconnect(proxy.dsn, timeout_s=0.5)
        await asyncio.to_thread(proxy.silence, "up")
        with pytest.raises(Unanswered) as raised:
            await conn.execute("SELECT 1")
        assert conn.closed
        assert classify(raised.value) is Reaction.RECONNECT

    asyncio.run(ask())


@pytest.mark.parametrize("held", [True, False])
def test_a_wait_that_holds_the_loop_ends_before_other_tasks_run(dsn: str, held: bool) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def ask() -> None:
        async with await aconnect(dsn) as conn:
            await conn.execute("SELECT 1")
            bounded.hold(conn, 5.0 if held else 0.0)
            task = asyncio.create_task(others())
            found = await (await conn.execute("SELECT 1, pg_sleep(0.05)::text")).fetchall()
            assert (found, turns > 0) == ([(1, "")], not held)
            task.cancel()

    asyncio.run(ask())


def test_a_late_answer_is_awaited_in_the_event_loop(dsn: str) -> None:
    async def ask() -> None:
        async with await aconnect(dsn) as conn:
            bounded.hold(conn, 0.02)
            began = time.monotonic()
            other = asyncio.create_task(asyncio.sleep(0.1))
            other.add_done_callback(lambda _: ended.append(time.monotonic() - began))
            assert await (await conn.execute("SELECT 7 FROM pg_sleep(0.5)")).fetchone() == (7,)
            assert ended and ended[0] < 0.4, "the other one did not wait for the server"
            with pytest.raises(psycopg.errors.DivisionByZero):
                await conn.execute("SELECT 1 / 0")
            rows = await (await conn.execute("SELECT n FROM generate_series(1, 100000) n")).fetchall()
            assert sum(row[0] for row in rows) == 5000050000

    ended: list[float] = []
    asyncio.run(ask())


def test_the_loop_is_not_held_while_an_answer_comes_in_pieces() -> None:
    near, far = socket.socketpair()
    pieces = 100

    def reads() -> Generator[Any, Any, int]:
        for _ in range(pieces):
            while not (yield waiting.Wait.R):
                pass
            near.recv(1)
        return pieces

    def writes() -> None:
        for _ in range(pieces):
            far.send(b"x")
            time.sleep(0.002)

    writer = threading.Thread(target=writes)
    writer.start()
    began = time.monotonic()
    found = waiting.wait(bounded.hold_wait(reads(), 0.02), near.fileno(), interval=0.02)
    assert time.monotonic() - began < 0.15
    assert isinstance(found, bounded.UnfinishedWait)
    assert waiting.wait(found.gen, near.fileno(), interval=0.02) == pieces
    writer.join()
    near.close()
    far.close()


def test_an_unanswered_statement_that_holds_the_loop_fails_too(proxy: Proxy) -> None:
    async def ask() -> None:
        conn = await aconnect(proxy.dsn, timeout_s=0.5)
        bounded.hold(conn, 0.01)
        await asyncio.to_thread(proxy.silence, "down")
        with pytest.raises(Unanswered):
            await conn.execute("SELECT 1")
        assert conn.closed

    asyncio.run(ask())


def test_a_live_server_itself_cancels_a_statement_that_takes_too_long(dsn: str) -> None:
    with connect(dsn, timeout_s=0.3) as conn:
        conn.execute("SELECT pg_sleep(0.1)")
        with pytest.raises(psycopg.errors.QueryCanceled):
            conn.execute("SELECT pg_sleep(5)")
        conn.execute("SELECT 1")


def test_an_answer_that_comes_in_pieces_is_waited_for(dsn: str) -> None:
    with connect(dsn, timeout_s=0) as conn:
        assert isinstance(conn, PatientConnection)
        conn.answer_within_s = 0.4
        began = time.monotonic()
        rows = conn.execute("SELECT repeat('x', 20000), pg_sleep(0.02) FROM generate_series(1, 40)").fetchall()
        assert len(rows) == 40 and time.monotonic() - began > 0.6


def test_without_a_limit_a_statement_waits_for_its_answer(dsn: str) -> None:
    with connect(dsn, timeout_s=0) as conn:
        assert isinstance(conn, PatientConnection)
        assert conn.answer_within_s is None
        conn.execute("SELECT pg_sleep(0.3)")

    async def ask() -> None:
        async with await aconnect(dsn, timeout_s=0) as conn:
            assert isinstance(conn, AsyncPatientConnection)
            assert conn.answer_within_s is None

    asyncio.run(ask())


def test_an_unanswered_enqueue_says_that_the_run_may_have_been_made(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("patient", dsn=proxy.dsn)

    @app.task
    def work() -> None: ...

    monkeypatch.setattr(connecting, "answer_limit_s", lambda timeout_s: 0.3)
    work.enqueue()
    proxy.silence("down")
    with pytest.raises(DatabaseUnreachable, match="may have been made"):
        work.enqueue()
    proxy.heal()
    work.enqueue()


def sockets() -> int:
    """Return how many sockets this process has open."""
    links = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(str(link).startswith("socket:") for link in links)


@pytest.mark.few(1)
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc here")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_failed_connection_attempt_leaves_no_socket(asynchronous: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        dsn = f"host=127.0.0.1 port={deaf.getsockname()[1]} user=u dbname=d connect_timeout=2"

        def attempt() -> None:
            with pytest.raises(DatabaseUnreachable):
                if asynchronous:
                    asyncio.run(aconnect(dsn))  # type: ignore[arg-type]
                else:
                    connect(dsn)

        gc.collect()
        gc.disable()  # a worker seldom collects reference cycles
        try:
            before = sockets()
            attempt()
            left = sockets() - before
        finally:
            gc.enable()
    assert left == 0, "each would be a session in a server that answers late"


def test_a_connection_that_breaks_at_its_first_question_is_closed(proxy: Proxy) -> None:
    proxy.lose_answer("pg_backend_pid")
    with pytest.raises(DatabaseUnreachable):
        connect(proxy.dsn)
    wait_until(lambda: not proxy.links, what="the connection to be closed")


def test_detecting_a_pooler_fails_when_the_pooler_stops_answering(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = PatientConnection.connect

    def connected(*args: Any, **options: Any) -> PatientConnection:
        conn = straight(*args, **options)
        proxy.silence("down")
        return conn

    monkeypatch.setattr(PatientConnection, "connect", connected)
    monkeypatch.setattr(PatientConnection, "answer_within_s", 0.5)
    with pytest.raises(Unanswered):
        pooler.detect_pooler(proxy.dsn)


def test_an_endless_answer_lets_other_tasks_of_the_loop_run() -> None:
    reading, writing = socket.socketpair()
    with reading, writing:
        writing.send(b"there is always more")

        def endless() -> Generator[Any, Any, None]:
            while True:
                yield Wait.R

        gen = bounded.drained(endless(), reading.fileno())
        next(gen)
        began = time.monotonic()
        assert gen.send(Ready.R) == Wait.R
        assert time.monotonic() - began < 1.0


def test_an_answer_that_has_arrived_is_read_in_few_rounds_of_the_loop(dsn: str) -> None:
    """A round of a worker's event loop may take a few milliseconds, and libpq reads 16 KB at a time."""

    async def scene() -> None:
        async with await aconnect(dsn) as conn:
            asked = asyncio.create_task(conn.execute("SELECT repeat('x', 1000) FROM generate_series(1, 150)"))
            await asyncio.sleep(0)  # the statement is sent
            threading.Event().wait(0.5)  # block the loop, as a handler does, while the answer arrives
            rounds = 0
            for rounds in range(100):  # noqa: B007
                await asyncio.sleep(0)
                if asked.done():
                    break
            assert len(await asked.result().fetchall()) == 150
            assert rounds <= 5

    asyncio.run(scene())
