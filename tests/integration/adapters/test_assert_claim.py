"""`assert_claim` on SQLAlchemy connections and sessions, with each driver: psycopg, psycopg2 and asyncpg."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from pgsched import ClaimLost, InputError
from pgsched.db.queries.runs.handler_transaction import assert_claim
from tests.support.db.engines import url
from tests.support.db.settling import zombie

pytestmark = [pytest.mark.packages, pytest.mark.scram]

WAYS = [
    sa.Connection,
    Session,
    lambda engine: scoped_session(sessionmaker(engine)),
]
ASYNC_WAYS = [
    lambda engine: engine.connect(),
    AsyncSession,
    lambda engine: async_scoped_session(async_sessionmaker(engine), asyncio.current_task),
]


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
@pytest.mark.parametrize("way", WAYS)
def test_only_the_current_owner_of_a_claim_passes(
    way: Callable[[Any], Any], driver: str, dsn: str, db: psycopg.Connection[Any]
) -> None:
    pytest.importorskip(driver)
    db.execute("CREATE TABLE written (by uuid)")
    old, new = zombie(db)
    engine = sa.create_engine(url(driver, dsn))
    insert = sa.text("INSERT INTO written VALUES (CAST(:by AS uuid))")
    held = way(engine)
    held.execute(insert, {"by": str(new.token)})
    assert_claim(held, new.id, new.token)
    assert db.execute("SELECT 1 FROM pgsched.runs WHERE id = %s FOR UPDATE SKIP LOCKED", [new.id]).fetchone() is None
    held.commit()
    held.execute(insert, {"by": str(old.token)})
    with pytest.raises(ClaimLost, match="is lost"):
        assert_claim(held, old.id, old.token)
    held.rollback()
    held.close()
    engine.dispose()
    assert db.execute("SELECT by FROM written").fetchall() == [(new.token,)]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("way", ASYNC_WAYS)
def test_only_the_current_owner_passes_on_async_connections(
    way: Callable[[Any], Any], driver: str, dsn: str, db: psycopg.Connection[Any]
) -> None:
    pytest.importorskip(driver)
    old, new = zombie(db)

    async def main() -> None:
        engine = create_async_engine(url(driver, dsn))
        held = way(engine)
        if isinstance(held, AsyncConnection):
            await held.start()
        await assert_claim(held, new.id, new.token)
        held_by = "SELECT 1 FROM pgsched.runs WHERE id = %s FOR UPDATE SKIP LOCKED"
        assert db.execute(held_by.encode(), [new.id]).fetchone() is None
        with pytest.raises(ClaimLost, match="is lost"):
            await assert_claim(held, old.id, old.token)
        await held.rollback()
        await held.close()
        await engine.dispose()

    asyncio.run(main())


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
@pytest.mark.parametrize("way", WAYS)
def test_autocommit_is_refused(way: Callable[[Any], Any], driver: str, dsn: str, db: psycopg.Connection[Any]) -> None:
    pytest.importorskip(driver)
    _, new = zombie(db)
    engine = sa.create_engine(url(driver, dsn), isolation_level="AUTOCOMMIT")
    held = way(engine)
    with pytest.raises(InputError, match="AUTOCOMMIT"):
        assert_claim(held, new.id, new.token)
    held.close()
    engine.dispose()


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_autocommit_is_refused_on_async_connections(driver: str, dsn: str, db: psycopg.Connection[Any]) -> None:
    pytest.importorskip(driver)
    _, new = zombie(db)

    async def main() -> None:
        engine = create_async_engine(url(driver, dsn), isolation_level="AUTOCOMMIT")
        async with engine.connect() as held:
            with pytest.raises(InputError, match="AUTOCOMMIT"):
                await assert_claim(held, new.id, new.token)
        await engine.dispose()

    asyncio.run(main())


@pytest.mark.parametrize("what", [object(), None, sa.text("x"), sa.create_engine("sqlite://")])
def test_an_object_that_is_no_connection_is_refused(what: Any, db: psycopg.Connection[Any]) -> None:
    _, new = zombie(db)
    with pytest.raises(InputError, match="expected a psycopg, SQLAlchemy or Django connection"):
        assert_claim(what, new.id, new.token)
