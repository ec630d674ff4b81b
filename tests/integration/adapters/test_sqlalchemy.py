"""Enqueueing on a SQLAlchemy connection or session: the run is part of its transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from pgsched import AlreadyEnqueued, App, InputError, QueueFull
from pgsched.app.release import releases
from pgsched.app.task import Task
from pgsched.db.queries.runs import tasks
from tests.support.db.engines import url

pytestmark = [pytest.mark.packages, pytest.mark.scram]

URL = "postgresql+psycopg://"
ENDS = pytest.mark.parametrize("commits", [True, False])


@pytest.fixture
def greet(dsn: str) -> Iterator[Any]:
    app = App("test", dsn=dsn)

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
def test_a_run_enqueued_on_a_connection_is_part_of_its_transaction(
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
def test_a_transaction_that_only_enqueues_commits_or_rolls_back_the_runs(
    commits: bool, greet: Task[Any, Any], engine: sa.Engine, db: psycopg.Connection[Any]
) -> None:
    with engine.connect() as conn:
        greet.options(connection=conn).enqueue("run")
        greet.options(connection=conn).enqueue_many([["run"]])
        conn.commit() if commits else conn.rollback()
    assert names(db) == (["run", "run"] if commits else [])


def sessions(engine: sa.Engine) -> list[Any]:
    class Mine(Session):
        """A subclass of Session, such as the one of SQLModel."""

    return [Session(engine), Mine(engine), scoped_session(sessionmaker(engine))]


@ENDS
@pytest.mark.parametrize("kind", range(3))
def test_a_run_enqueued_on_a_session_is_part_of_its_transaction(
    kind: int, commits: bool, greet: Task[Any, Any], engine: sa.Engine, db: psycopg.Connection[Any]
) -> None:
    session = sessions(engine)[kind]
    session.execute(ORDER)
    greet.enqueue("run", connection=session)
    session.commit() if commits else session.rollback()
    session.close()
    assert names(db) == (["order", "run"] if commits else [])


def test_a_rollback_to_a_savepoint_removes_the_run(
    greet: Task[Any, Any], engine: sa.Engine, db: psycopg.Connection[Any]
) -> None:
    with Session(engine) as session, session.begin():
        greet.enqueue("kept", connection=session)
        inner = session.begin_nested()
        greet.enqueue("gone", connection=session)
        inner.rollback()
    assert names(db) == ["kept"]


def test_a_run_enqueued_under_autocommit_is_visible_at_once(
    greet: Task[Any, Any], engine: sa.Engine, db: psycopg.Connection[Any]
) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        greet.enqueue("run", connection=conn)
        assert names(db) == ["run"]


@ENDS
@pytest.mark.parametrize("kind", ["connection", "session", "scoped"])
def test_runs_enqueued_on_async_connections_are_part_of_their_transaction(
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


def test_unique_keys_hold_on_a_session(greet: Task[Any, Any], engine: sa.Engine) -> None:
    with Session(engine) as session, session.begin():
        unique = greet.options(unique_key="k", connection=session)
        assert [unique.enqueue("a").how, unique.enqueue("b").how] == ["created", "existing"]


def test_a_connection_of_the_wrong_kind_is_refused(greet: Task[Any, Any], engine: sa.Engine, dsn: str) -> None:
    async def main() -> None:
        mine = async_engine(dsn)
        async with mine.connect() as conn:
            with pytest.raises(
                InputError, match=r"expected a psycopg, .* connection, got a sqlalchemy\.AsyncConnection"
            ):
                greet.enqueue("x", connection=conn)  # type: ignore[call-overload]
        refused = pytest.raises(InputError, match=r"expected an asyncio .*, got a sqlalchemy\.Session")
        with Session(engine) as session, refused:
            await greet.enqueue_async("x", connection=session)  # type: ignore[call-overload]
        await mine.dispose()

    asyncio.run(main())
    with pytest.raises(InputError, match=r"expected a psycopg\.Connection, got a sqlalchemy\.Engine"):
        greet.enqueue("x", connection=engine)  # type: ignore[call-overload]


def test_a_connection_to_sqlite_is_refused(greet: Task[Any, Any]) -> None:
    with (
        sa.create_engine("sqlite://").connect() as conn,
        pytest.raises(InputError, match="connection: it is of sqlite, and runs are in PostgreSQL"),
    ):
        greet.enqueue("x", connection=conn)


@ENDS
@pytest.mark.parametrize("kind", ["Connection", "Session"])
def test_a_run_is_enqueued_with_another_driver(
    greet: Task[Any, Any], dsn: str, db: psycopg.Connection[Any], commits: bool, kind: str
) -> None:
    engine = sa.create_engine(url("psycopg2", dsn))
    with engine.connect() if kind == "Connection" else Session(engine) as mine:
        run = greet.options(tags=["a"], delay=60, unique_key="k", connection=mine).enqueue("x")
        again = greet.options(unique_key="k", connection=mine).enqueue("y")
        assert (again, again.how, run.created) == (run, "existing", True)
        with pytest.raises(AlreadyEnqueued):
            greet.options(unique_key="k", on_conflict="reject", connection=mine).enqueue("y")
        assert greet.enqueue_many([{"name": "z"}] * 2, connection=mine) == 2
        many = greet.options(unique_by=True, connection=mine).enqueue_many([["z"], ["z"]], return_ids=True)
        assert [one.how for one in many] == ["created", "existing"]
        assert greet.enqueue_many([["k"], ["k"]], connection=mine, idempotency_keys=["1", "1"]) == 1
        mine.commit() if commits else mine.rollback()
    found = db.execute("SELECT args->>'name', tags, state FROM pgsched.runs ORDER BY id").fetchall()
    assert found == (
        [("x", ["a"], "scheduled"), *[("z", None, "queued")] * 3, ("k", None, "queued")] if commits else []
    )
    engine.dispose()


def test_the_key_that_a_task_declares_holds_by_name_with_another_driver(dsn: str, db: psycopg.Connection[Any]) -> None:
    shop, other = App("shop"), App("other", dsn=dsn)
    shop.task(name="once", unique_by=True)(lambda n: None)
    assert tasks.register(db, "shop", releases(shop.tasks.values())) is None
    engine = sa.create_engine(url("psycopg2", dsn))
    with engine.begin() as mine:
        first, again = (other.enqueue("once", {"n": 1}, connection=mine) for _ in range(2))
        plain = [other.enqueue("plain", {"n": 1}, connection=mine) for _ in range(2)]
    assert (first.created, again, again.how) == (True, first, "existing")
    assert plain[0] != plain[1] and plain[1].created
    engine.dispose()
    other.close()


@ENDS
def test_a_run_is_enqueued_with_another_asyncio_driver(
    greet: Task[Any, Any], dsn: str, db: psycopg.Connection[Any], commits: bool
) -> None:
    async def main() -> None:
        engine = create_async_engine(url("asyncpg", dsn))
        async with AsyncSession(engine) as mine:
            run = await greet.options(tags=["a"], priority=1, connection=mine).enqueue_async("x")
            assert run.created and (await run.info_async(connection=mine)).tags == ["a"]
            assert await greet.enqueue_many_async([["x"]], connection=mine) == 1
            assert await greet.enqueue_many_async([["k"], ["k"]], connection=mine, idempotency_keys=["1", "1"]) == 1
            await (mine.commit() if commits else mine.rollback())
        await engine.dispose()

    asyncio.run(main())
    found = db.execute("SELECT args->>'name', priority FROM pgsched.runs ORDER BY id").fetchall()
    assert found == ([("x", 1), ("x", 5), ("k", 5)] if commits else [])


def test_a_refusal_and_a_failure_of_another_driver_are_raised_as_they_are(
    greet: Task[Any, Any], dsn: str, db: psycopg.Connection[Any]
) -> None:
    db.execute("INSERT INTO pgsched.queues (name, max_depth) VALUES ('full', 1)")
    greet.options(queue="full").enqueue("x")
    engine = sa.create_engine(url("psycopg2", dsn))
    with engine.connect() as mine:
        with pytest.raises(QueueFull):
            greet.options(queue="full", connection=mine).enqueue("x")
        with pytest.raises(sa.exc.DBAPIError, match="current transaction is aborted"):
            greet.options(connection=mine).enqueue("x")
    engine.dispose()


@pytest.mark.long
def test_enqueueing_does_not_import_sqlalchemy(dsn: str) -> None:
    import subprocess
    import sys

    code = (
        "import sys, pgsched; app = pgsched.App('test', dsn=sys.argv[1]); app.task(name='t')(lambda: None).enqueue();"
        "sys.exit('sqlalchemy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, dsn], timeout=60).returncode == 0
