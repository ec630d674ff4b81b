"""Statements by libpq's own calls give what a cursor gives, and fail as it does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest
from psycopg.pq.abc import PGresult

from pgsched.db import direct
from pgsched.db.connect import AsyncConnection, aconnect
from pgsched.db.direct import numbering, rows
from pgsched.db.patient import AsyncPatientConnection

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


def test_a_preparation_that_was_cut_short_is_made_anew(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows whether the server has it."""

    async def scene(conn: AsyncConnection) -> None:
        async def cut(conn: AsyncPatientConnection) -> PGresult:
            await really(conn)
            raise asyncio.CancelledError

        with monkeypatch.context() as once:
            once.setattr(direct, "answer", cut)
            with pytest.raises(asyncio.CancelledError):
                await rows(conn, b"SELECT 1", {})
        assert await rows(conn, b"SELECT 1", {}) == [(1,)]

    really = direct.answer
    play(dsn, scene)


def test_placeholders_are_numbered_as_they_come() -> None:
    assert numbering(b"a %(x)s b %(y)s::text[] c %(x)s 5 %% 2") == (b"a $1 b $2::text[] c $1 5 % 2", ("x", "y"))
