"""Statements by libpq's own calls give what a cursor gives, and fail as it does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import generators
from psycopg.pq.abc import PGconn

from pgsched.db.connection.bounded import AsyncPatientConnection, PatientConnection, Unanswered
from pgsched.db.connection.connect import AsyncConnection, aconnect, connect
from pgsched.db.connection.prepared import can_be_sent, first, first_async, numbering, rows
from tests.support.waiting import wait_until

TOKEN = UUID("6d7e0f8e-6d1c-4a5e-9d0b-0d7b6c1f2a3b")
ECHO = b"""SELECT %(text)s::text, %(n)s::bigint + 1, %(share)s::float8, %(token)s::uuid, %(none)s::int, 7 %% 4,
    %(text)s::text = %(text)s, '90 s'::interval, '{"a": 1}'::jsonb"""
VALUES = {"text": 'it\'s "odd" {a,b} \\ ü %(n)s $1', "n": 2**40, "share": 0.1, "token": TOKEN, "none": None}


def play(dsn: str, scene: Callable[[AsyncConnection], Awaitable[None]]) -> None:
    async def played() -> None:
        async with await aconnect(dsn) as conn:
            await scene(conn)

    asyncio.run(played())


def test_the_rows_are_those_of_a_cursor_and_json_comes_as_text(dsn: str) -> None:
    async def scene(conn: AsyncConnection) -> None:
        (row,) = await rows(conn, ECHO, VALUES)
        assert row == (VALUES["text"], 2**40 + 1, 0.1, TOKEN, None, 3, True, timedelta(seconds=90), '{"a": 1}')
        (same,) = await (await conn.execute(ECHO, VALUES)).fetchall()
        assert row[:-1] == same[:-1]
        assert same[-1] == {"a": 1}, "only there"
        assert await rows(conn, b"SELECT 1 WHERE false", {}) == []

    play(dsn, scene)


@pytest.mark.parametrize("n", [1, 99, 100, 101, 250])
def test_rows_that_are_read_a_few_at_a_time_are_all_and_in_order(n: int, dsn: str) -> None:
    async def scene(conn: AsyncConnection) -> None:
        found = await rows(conn, b"SELECT generate_series(1, %(n)s::int)", {"n": n})
        assert found == [(i,) for i in range(1, n + 1)]

    play(dsn, scene)


def test_a_statement_is_prepared_once(dsn: str) -> None:
    async def scene(conn: AsyncConnection) -> None:
        for n in (1, 2, 3):
            assert await rows(conn, b"SELECT %(n)s::int", {"n": n}) == [(n,)]
            assert await rows(conn, b"SELECT -%(n)s::int", {"n": n}) == [(-n,)]
        found = await (await conn.execute("SELECT generic_plans + custom_plans FROM pg_prepared_statements")).fetchall()
        assert found == [(3,), (3,)]

    play(dsn, scene)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"SELECT 1 / %(n)s::int", psycopg.errors.DivisionByZero),
        (b"SELECT %(n)s::int FROM no_such_table", psycopg.errors.UndefinedTable),
        (b"SELECT %(n)s::uuid", psycopg.errors.InvalidTextRepresentation),
    ],
)
def test_what_the_server_refuses_is_raised_and_the_connection_lives(
    text: bytes, error: type[psycopg.Error], dsn: str
) -> None:
    async def scene(conn: AsyncConnection) -> None:
        for _ in range(2):
            with pytest.raises(error):
                await rows(conn, text, {"n": 0})
        assert await rows(conn, b"SELECT %(n)s::int", {"n": 1}) == [(1,)]

    play(dsn, scene)


@pytest.mark.parametrize(("bad", "error"), [("a\0b", psycopg.DataError), ("\ud800", UnicodeEncodeError)])
def test_what_no_text_can_be_is_refused_and_not_cut_short(bad: str, error: type[Exception], dsn: str) -> None:
    async def scene(conn: AsyncConnection) -> None:
        with pytest.raises(error):
            await rows(conn, b"SELECT %(text)s::text", {"text": bad})
        assert await rows(conn, b"SELECT %(text)s::text", {"text": "ab"}) == [("ab",)]

    play(dsn, scene)


def test_a_session_that_is_gone_ends_the_connection(dsn: str, db: psycopg.Connection) -> None:
    async def scene(conn: AsyncConnection) -> None:
        await rows(conn, b"SELECT 1", {})
        db.execute("SELECT pg_terminate_backend(%s, 5000)", [conn.info.backend_pid])
        for _ in range(2):
            with pytest.raises(psycopg.OperationalError):
                await rows(conn, b"SELECT 1", {})
            assert conn.closed

    play(dsn, scene)


def test_a_preparation_that_was_cut_short_is_made_anew(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may be done with it before it hears of the cancellation; the statement is not executed for that."""
    db.execute("CREATE TABLE made (i int)")
    text = b"INSERT INTO made VALUES (1) RETURNING i"
    holder = psycopg.connect(dsn)
    holder.execute("LOCK TABLE made")

    async def scene(conn: AsyncConnection) -> None:
        async def too_late(*_: Any, **__: Any) -> None:
            holder.close()

        asking = asyncio.create_task(rows(conn, text, {}))
        waits = "SELECT FROM pg_locks WHERE NOT granted AND pid = %s"
        pid = conn.info.backend_pid
        await asyncio.to_thread(wait_until, lambda: db.execute(waits, [pid]).rowcount, 10, "the preparation to wait")
        with monkeypatch.context() as once:
            once.setattr(AsyncPatientConnection, "_try_cancel", too_late)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert not db.execute("SELECT FROM made").rowcount
        assert await rows(conn, text, {}) == [(1,)]

    play(dsn, scene)


PREPARED = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'pgsched%'"


def test_a_first_row_is_that_of_a_cursor(dsn: str) -> None:
    text, values = ECHO[: ECHO.rindex(b",")], {**VALUES, "share": "0.1", "token": str(TOKEN)}
    asked: list[tuple[bytes, dict[str, object]]] = [
        (text, values),
        (b"SELECT generate_series(1, %(n)s::int)", {"n": 3}),
        (b"SELECT 1 WHERE false", {}),
    ]
    with connect(dsn) as conn:
        assert isinstance(conn, PatientConnection)
        found = [first(conn, *one) for one in asked * 2]
        assert found == [conn.execute(*one).fetchone() for one in asked] * 2
        assert conn.execute(PREPARED).fetchone() == (3,), "each once"

    async def scene(conn: AsyncConnection) -> None:
        assert isinstance(conn, AsyncPatientConnection)
        assert [await first_async(conn, *one) for one in asked * 2] == found

    play(dsn, scene)


def test_what_is_no_plain_text_or_number_is_not_for_them() -> None:
    class Queue(str, Enum):  # noqa: UP042 - what str() makes of it is not the text
        MAIL = "mail"

    class Level(int, Enum):
        HIGH = 7

    text = b"SELECT %(v)s, %(v)s"
    assert all(can_be_sent(text, {"v": value, "w": object()}) for value in ("a", 1, None))
    assert not any(
        can_be_sent(text, {"v": value}) for value in (Queue.MAIL, Level.HIGH, True, 1.5, ["a"], timedelta(1))
    )


@pytest.mark.parametrize("within", [False, True], ids=["alone", "in a transaction"])
@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"SELECT 1 / %(n)s::int", psycopg.errors.DivisionByZero),
        (b"SELECT %(n)s::int FROM no_such_table", psycopg.errors.UndefinedTable),
    ],
)
def test_a_first_row_that_is_refused_is_raised_and_the_connection_lives(
    text: bytes, error: type[psycopg.Error], dsn: str, within: bool
) -> None:
    with connect(dsn) as conn:
        assert isinstance(conn, PatientConnection)
        for _ in range(2):
            with pytest.raises(error), conn.transaction() if within else nullcontext():
                first(conn, text, {"n": 0})
        assert first(conn, b"SELECT %(n)s::int", {"n": 1}) == (1,)
        with pytest.raises(psycopg.DataError):
            first(conn, b"SELECT %(text)s::text", {"text": "a\0b"})
        assert first(conn, b"SELECT %(text)s::text", {"text": "ab"}) == ("ab",)


def test_a_first_row_from_a_session_that_is_gone_ends_the_connection(dsn: str, db: psycopg.Connection) -> None:
    with connect(dsn) as conn:
        assert isinstance(conn, PatientConnection)
        first(conn, b"SELECT 1", {})
        db.execute("SELECT pg_terminate_backend(%s, 5000)", [conn.info.backend_pid])
        for _ in range(2):
            with pytest.raises(psycopg.OperationalError):
                first(conn, b"SELECT 1", {})
            assert conn.closed


def test_a_first_row_that_does_not_come_is_waited_for_within_a_bound(dsn: str) -> None:
    with connect(dsn) as conn:
        assert isinstance(conn, PatientConnection)
        conn.answer_within_s = 0.3
        with pytest.raises(Unanswered):
            first(conn, b"SELECT pg_sleep(%(s)s::float8)", {"s": 20})
        assert conn.closed


def test_a_first_row_that_is_cut_short_while_it_is_asked_for_ends_the_connection(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a signal does between what libpq sends and what it waits for; left open, it would answer nothing any more."""

    def interrupted(value: PGconn) -> None:
        raise KeyboardInterrupt

    with connect(dsn) as conn:
        assert isinstance(conn, PatientConnection)
        first(conn, b"SELECT 1", {})
        monkeypatch.setattr(generators, "execute", interrupted)
        with pytest.raises(KeyboardInterrupt):
            first(conn, b"SELECT 1", {})
        assert conn.closed


@pytest.mark.parametrize("within", [False, True], ids=["alone", "in a transaction"])
def test_plans_that_somebody_dropped_are_made_anew(dsn: str, within: bool) -> None:
    refused = pytest.raises(psycopg.errors.InvalidSqlStatementName) if within else nullcontext()
    with connect(dsn) as conn:
        assert isinstance(conn, PatientConnection)
        first(conn, b"SELECT 1", {})
        conn.execute("DEALLOCATE ALL")
        with refused, conn.transaction() if within else nullcontext():
            assert first(conn, b"SELECT 1", {}) == (1,)
        assert first(conn, b"SELECT 1", {}) == (1,)

    async def scene(conn: AsyncConnection) -> None:
        assert isinstance(conn, AsyncPatientConnection)
        await first_async(conn, b"SELECT 1", {})
        await conn.execute("DEALLOCATE ALL")
        with refused:
            async with conn.transaction() if within else nullcontext():
                assert await first_async(conn, b"SELECT 1", {}) == (1,)
        assert await first_async(conn, b"SELECT 1", {}) == (1,)

    play(dsn, scene)


def test_one_thread_waits_for_another_with_its_first_row(dsn: str) -> None:
    text = b"SELECT %(n)s::int, pg_sleep(0.001)::text"
    with connect(dsn) as conn, ThreadPoolExecutor(4) as threads:
        assert isinstance(conn, PatientConnection)
        same = conn
        found = list(threads.map(lambda n: first(same, text, {"n": n}), range(100)))
    assert found == [(n, "") for n in range(100)]


def test_one_task_waits_for_another_with_its_first_row(dsn: str) -> None:
    async def scene(conn: AsyncConnection) -> None:
        assert isinstance(conn, AsyncPatientConnection)
        text = b"SELECT %(n)s::int, pg_sleep(0.001)::text"
        found = await asyncio.gather(*(first_async(conn, text, {"n": n}) for n in range(20)))
        assert found == [(n, "") for n in range(20)]

    play(dsn, scene)


def test_placeholders_are_numbered_as_they_come() -> None:
    assert numbering(b"a %(x)s b %(y)s::text[] c %(x)s 5 %% 2") == (b"a $1 b $2::text[] c $1 5 % 2", ("x", "y"))
