"""Fixtures: the callers' own connections, of each driver and library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.support.db.engines import url

Opened = Callable[[], AbstractContextManager[Any]]
AsyncOpened = Callable[[], AbstractAsyncContextManager[Any]]
SYNC = ["psycopg", "psycopg Connection", "psycopg Session", "psycopg2 Connection", "psycopg2 Session"]
ASYNC = [
    "psycopg",
    "psycopg AsyncConnection",
    "psycopg AsyncSession",
    "asyncpg AsyncConnection",
    "asyncpg AsyncSession",
]


@pytest.fixture(params=SYNC)
def opened(request: pytest.FixtureRequest, dsn: str) -> Opened:
    driver, _, kind = request.param.partition(" ")
    pytest.importorskip(driver)

    @contextmanager
    def connection() -> Iterator[Any]:
        if not kind:
            with psycopg.connect(dsn) as mine:
                yield mine
                mine.rollback()
            return
        engine = sa.create_engine(url(driver, dsn))
        with engine.connect() if kind == "Connection" else Session(engine) as mine:
            yield mine
        engine.dispose()

    return connection


@pytest.fixture(params=ASYNC)
def opened_async(request: pytest.FixtureRequest, dsn: str) -> AsyncOpened:
    driver, _, kind = request.param.partition(" ")
    pytest.importorskip(driver)

    @asynccontextmanager
    async def connection() -> Any:
        if not kind:
            async with await psycopg.AsyncConnection.connect(dsn) as mine:
                yield mine
                await mine.rollback()
            return
        engine = create_async_engine(url(driver, dsn))
        async with engine.connect() if kind == "AsyncConnection" else AsyncSession(engine) as mine:
            yield mine
        await engine.dispose()

    return connection
