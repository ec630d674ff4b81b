"""A connection that cannot be used is closed, whichever error it raises."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import psycopg
import pytest

from pgsched.db.connection import handler_pool, routes, transaction_pooling
from pgsched.db.connection.pooler import Pooler, PoolerMode

SESSION = PoolerMode(Pooler.SESSION, prepares=True, until=0)
ERRORS = [psycopg.errors.UndefinedObject("no such setting"), KeyboardInterrupt()]


class Refusing:
    """A connection through a pooler that refuses its settings."""

    settings = b""

    def __init__(self, error: BaseException) -> None:
        self.error, self.closed = error, False

    def execute(self, _: Any) -> None:
        raise self.error

    def close(self) -> None:
        self.closed = True


class AsyncRefusing(Refusing):
    async def execute(self, _: Any) -> None:  # type: ignore[override]
        raise self.error

    async def close(self) -> None:  # type: ignore[override]
        self.closed = True


@pytest.mark.parametrize("error", ERRORS)
def test_a_session_that_refuses_its_settings_is_closed(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    conn = Refusing(error)
    monkeypatch.setattr(transaction_pooling.KeptConnection, "connect", lambda *_, **__: conn)
    with pytest.raises(type(error)):
        routes.through(SESSION, "", {})
    assert conn.closed


@pytest.mark.parametrize("error", [ERRORS[0], asyncio.CancelledError()])
def test_an_asyncio_session_that_refuses_its_settings_is_closed(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn = AsyncRefusing(error)

    async def connect(*_: Any, **__: Any) -> Any:
        return conn

    async def main() -> None:
        with pytest.raises(type(error)):
            await routes.through_async(SESSION, "", {})

    monkeypatch.setattr(transaction_pooling.AsyncKeptConnection, "connect", connect)
    asyncio.run(main())
    assert conn.closed


@pytest.mark.parametrize("error", [psycopg.OperationalError("gone"), asyncio.CancelledError()])
def test_an_idle_connection_that_cannot_be_reset_is_closed(error: BaseException) -> None:
    conn: Any = AsyncRefusing(error)
    given_up = pytest.raises(type(error)) if isinstance(error, asyncio.CancelledError) else contextlib.nullcontext()

    async def main() -> None:
        with given_up:
            assert await handler_pool.reset_async([conn]) is None

    asyncio.run(main())
    assert conn.closed
