"""Enqueueing on SQLAlchemy's connections and sessions, in the transaction they are in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from pgsched import App, InputError
from pgsched.app.task import Task

pytestmark = [pytest.mark.packages, pytest.mark.scram]

URL = "postgresql+psycopg://"
ENDS = pytest.mark.parametrize("commits", [True, False])


@pytest.fixture
def greet(dsn: str) -> Iterator[Any]:
    app = App(dsn=dsn)

    @app.task(name="t")
    def greet(name: str) -> None: ...

    yield greet
    app.close()


@pytest.fixture
def engine(dsn: str, db: psycopg.Connection[Any]) -> Iterator[sa.Engine]:
    db.execute("CREATE TABLE orders (name text)")
    engine = sa.create_engine(URL, creator=lambda: psycopg.connect(dsn))
    yield engine
    engine.dispose()


def async_engine(dsn: str) -> AsyncEngine:
    async def connect() -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(dsn)

    return create_async_engine(URL, async_creator=connect)


def names(db: psycopg.Connection[Any]) -> list[str]:
    rows = db.execute("SELECT name FROM orders UNION ALL SELECT args->>'name' FROM pgsched.runs ORDER BY 1")
    return [row[0] for row in rows]


ORDER = sa.text("INSERT INTO orders VALUES ('order')")


@ENDS
@pytest.mark.parametrize("first", ["order", "run"])
def test_on_a_connection_the_run_shares_its_transaction(
    first: str, commits: bool, greet: Task[Any, Any], engine: sa.Engine, db: psycopg.Connection[Any]
) -> None:
    with engine.connect() as conn:
        steps: list[Callable[[], Any]] = [lambda: conn.execute(ORDER), lambda: greet.enqueue("run", connection=conn)]
        for step in steps if first == "order" else steps[::-1]:
            step()
        assert names(db) == []
        conn.commit() if commits else conn.rollback()
    assert names(db) == (["order", "run"] if commits else [])


@pytest.mark.parametrize("commits", [True, False])
def test_alone_on_a_connection_it_commits_with_it(
    commits: bool, greet: Task[Any, Any], engine: sa.Engine, db: psycopg.Connection[Any]
) -> None:
    with engine.connect() as conn:
        greet.options(connection=conn).enqueue("run")
        greet.options(connection=conn).enqueue_many([["run"]])
        conn.commit() if commits else conn.rollback()
    assert names(db) == (["run", "run"] if commits else [])


def sessions(engine: sa.Engine) -> list[Any]:
    class Mine(Session):
        """As SQLModel derives its own."""

    return [Session(engine), Mine(engine), scoped_session(sessionmaker(engine))]


@ENDS
@pytest.mark.parametrize("kind", range(3))
def test_on_a_session_too(
    kind: int, commits: bool, greet: Task[Any, Any], engine: sa.Engine, db: psycopg.Connection[Any]
) -> None:
    session = sessions(engine)[kind]
    session.execute(ORDER)
    greet.enqueue("run", connection=session)
    session.commit() if commits else session.rollback()
    session.close()
    assert names(db) == (["order", "run"] if commits else [])


def test_a_savepoint_that_is_rolled_back_takes_the_run_with_it(
    greet: Task[Any, Any], engine: sa.Engine, db: psycopg.Connection[Any]
) -> None:
    with Session(engine) as session, session.begin():
        greet.enqueue("kept", connection=session)
        inner = session.begin_nested()
        greet.enqueue("gone", connection=session)
        inner.rollback()
    assert names(db) == ["kept"]


def test_under_autocommit_it_is_there_at_once(
    greet: Task[Any, Any], engine: sa.Engine, db: psycopg.Connection[Any]
) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        greet.enqueue("run", connection=conn)
        assert names(db) == ["run"]


@ENDS
@pytest.mark.parametrize("kind", ["connection", "session", "scoped"])
def test_the_async_ones_as_well(
    kind: str, commits: bool, greet: Task[Any, Any], engine: sa.Engine, db: psycopg.Connection[Any], dsn: str
) -> None:
    async def main() -> None:
        mine = async_engine(dsn)
        maker = sessionmaker(mine, class_=AsyncSession)  # type: ignore[call-overload]
        held: Any = {
            "connection": mine.connect,
            "session": lambda: AsyncSession(mine),
            "scoped": lambda: async_scoped_session(maker, scopefunc=asyncio.current_task),
        }[kind]()
        if kind == "connection":
            await held.start()
        await greet.enqueue_async("run", connection=held)
        await greet.options(connection=held).enqueue_many_async([["run"]])
        await held.execute(ORDER)
        await (held.commit() if commits else held.rollback())
        await held.close()
        await mine.dispose()

    asyncio.run(main())
    assert names(db) == (["order", "run", "run"] if commits else [])


def test_unique_keys_hold_there(greet: Task[Any, Any], engine: sa.Engine) -> None:
    with Session(engine) as session, session.begin():
        unique = greet.options(unique_key="k", connection=session)
        assert [unique.enqueue("a").how, unique.enqueue("b").how] == ["created", "existing"]


def test_the_wrong_form_is_refused(greet: Task[Any, Any], engine: sa.Engine, dsn: str) -> None:
    async def main() -> None:
        mine = async_engine(dsn)
        async with mine.connect() as conn:
            with pytest.raises(InputError, match=r"expected a psycopg\.Connection, got a sqlalchemy\.AsyncConnection"):
                greet.enqueue("x", connection=conn)  # type: ignore[call-overload]
        refused = pytest.raises(InputError, match=r"expected a psycopg\.AsyncConnection, got a sqlalchemy\.Session")
        with Session(engine) as session, refused:
            await greet.enqueue_async("x", connection=session)  # type: ignore[call-overload]
        await mine.dispose()

    asyncio.run(main())
    with pytest.raises(InputError, match=r"expected a psycopg\.Connection, got a sqlalchemy\.Engine"):
        greet.enqueue("x", connection=engine)  # type: ignore[call-overload]


def test_another_database_is_refused(greet: Task[Any, Any]) -> None:
    with sa.create_engine("sqlite://").connect() as conn:
        with pytest.raises(InputError, match=r"SQLAlchemy speaks sqlite\+pysqlite here, pgsched psycopg 3") as raised:
            greet.enqueue("x", connection=conn)
        assert "SELECT" not in str(raised.value)


def test_another_driver_is_refused_with_what_to_do(
    greet: Task[Any, Any], engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.dialect, "driver", "asyncpg")
    refused = pytest.raises(InputError, match=r"postgresql\+asyncpg here.* or send SELECT pgsched\.enqueue\(\.\.\.\)")
    with Session(engine) as session, refused:
        greet.enqueue("x", connection=session)


def test_nothing_imports_sqlalchemy_to_enqueue(dsn: str) -> None:
    import subprocess
    import sys

    code = (
        "import sys, pgsched; app = pgsched.App(dsn=sys.argv[1]); app.task(name='t')(lambda: None).enqueue();"
        "sys.exit('sqlalchemy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, dsn], timeout=60).returncode == 0
