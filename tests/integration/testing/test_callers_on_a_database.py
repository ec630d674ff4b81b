"""The recorder honours the caller's commit and rollback: psycopg, SQLAlchemy's asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine

from pgsched import App, InputError, State
from pgsched.testing import enqueued, inline, record
from tests.support.timing import count_calls
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.packages, pytest.mark.scram]


def users(runs: list[Any]) -> list[int]:
    return [run.args["user"] for run in runs]


# ---- psycopg


Ending = Callable[[psycopg.Connection[Any]], object]
ENDINGS: dict[str, tuple[Ending, bool]] = {
    "commit": (lambda conn: conn.commit(), True),
    "rollback": (lambda conn: conn.rollback(), False),
    "a COMMIT of the program's own": (lambda conn: conn.execute("COMMIT"), True),
    "a ROLLBACK of the program's own": (lambda conn: conn.execute("ROLLBACK"), False),
    "close": (lambda conn: conn.close(), False),
    "commit and close": (lambda conn: conn.__exit__(None, None, None), True),
    "commit and the next transaction": (lambda conn: (conn.commit(), conn.execute("SELECT 1")), True),
    "rollback and the next transaction": (lambda conn: (conn.rollback(), conn.execute("SELECT 1")), False),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_run_on_a_psycopg_connection_counts_after_its_commit(ending: str, app: App, welcome: Any, dsn: str) -> None:
    with record(app) as recorder:
        conn = psycopg.connect(dsn)
        welcome.enqueue(1, connection=conn)
        assert welcome.enqueue_many([[2], [3]], connection=conn) == 2
        assert recorder.runs == []
        assert users(recorder.pending(conn)) == users(enqueued(welcome, connection=conn)) == [1, 2, 3]
        end, commits = ENDINGS[ending]
        end(conn)
        assert users(recorder.runs) == ([1, 2, 3] if commits else [])
        assert recorder.pending() == []
        conn.close()


def test_a_failed_commit_on_a_psycopg_connection_is_no_commit(
    app: App, welcome: Any, dsn: str, db: psycopg.Connection[Any]
) -> None:
    db.execute("CREATE TABLE t (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    with record(app) as recorder, psycopg.connect(dsn) as conn:
        conn.execute("INSERT INTO t VALUES (1), (1)")
        welcome.enqueue(1, connection=conn)
        with pytest.raises(psycopg.errors.UniqueViolation):
            conn.commit()
        assert recorder.runs == [] and recorder.pending() == []


def test_a_rollback_to_a_savepoint_on_a_psycopg_connection_takes_only_its_runs(
    app: App, welcome: Any, dsn: str
) -> None:
    with record(app) as recorder, psycopg.connect(dsn, autocommit=True) as conn:
        with conn.transaction():
            welcome.enqueue(1, connection=conn)
            with conn.transaction():
                welcome.enqueue(2, connection=conn)
            with conn.transaction(force_rollback=True):
                welcome.enqueue(3, connection=conn)
                with conn.transaction():
                    welcome.enqueue(4, connection=conn)
                assert users(recorder.pending(conn)) == [1, 2, 3, 4]
            assert users(recorder.pending(conn)) == [1, 2]
        assert users(recorder.runs) == [1, 2]


def test_a_psycopg_connection_in_autocommit_enqueues_at_once(app: App, welcome: Any, seen: list[Any], dsn: str) -> None:
    with inline(app), psycopg.connect(dsn, autocommit=True) as conn:
        welcome.enqueue(1, connection=conn)
        assert seen == [1]


def test_a_failed_transaction_is_open_until_it_ends(app: App, welcome: Any, dsn: str) -> None:
    with record(app) as recorder, psycopg.connect(dsn) as conn:
        conn.execute("SAVEPOINT mine")
        welcome.enqueue(1, connection=conn)
        conn.execute("SAVEPOINT later")
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("SELECT 1 / 0")
        assert users(recorder.pending(conn)) == [1]
        conn.execute("ROLLBACK TO later")
        conn.commit()
        assert users(recorder.runs) == [1]


def test_runs_on_an_asyncio_psycopg_connection_count_after_its_commit(
    app: App, welcome: Any, seen: list[Any], dsn: str
) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            await welcome.enqueue_async(1, connection=conn)
            await welcome.options(connection=conn).enqueue_many_async([[2]])
            assert users(recorder.pending(conn)) == [1, 2]
            await conn.commit()
            await recorder.drain_async()
            assert seen == [1, 2]
            await welcome.enqueue_async(3, connection=conn)
            await conn.rollback()
            await conn.set_autocommit(True)
            await welcome.enqueue_async(4, connection=conn)
            with pytest.raises(InputError, match=r"expected a psycopg\.Connection, got a psycopg\.AsyncConnection"):
                welcome.enqueue(5, connection=conn)
        assert users(recorder.runs) == [1, 2, 4]

    with inline(app) as recorder:
        asyncio.run(main())
    assert seen == [1, 2, 4]


def test_inline_a_run_on_a_psycopg_connection_runs_when_the_test_next_looks(
    app: App, welcome: Any, seen: list[Any], dsn: str
) -> None:
    with pytest.raises(ValueError, match="no user -3"), inline(app) as recorder, psycopg.connect(dsn) as conn:
        welcome.enqueue(1, connection=conn)
        conn.commit()
        assert seen == []
        recorder.drain()
        assert seen == [1]
        welcome.enqueue(2, connection=conn)
        conn.commit()
        welcome.enqueue(-3, connection=conn)
        conn.commit()
    assert seen == [1, 2, -3]


def test_the_listening_connection_ends_with_the_block(
    app: App, welcome: Any, dsn: str, db: psycopg.Connection[Any]
) -> None:
    count = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
    )
    with psycopg.connect(dsn) as conn:
        with record(app):
            for user in range(3):
                welcome.enqueue(user, connection=conn)
            assert db.execute(count).fetchone() == (3,), "the test's two, and one that listens"
        wait_until(lambda: db.execute(count).fetchone() == (2,), what="the end of the listening connection")


@pytest.mark.parametrize("is_one_transaction", [True, False], ids=["one transaction", "savepoints"])
def test_an_enqueue_asks_as_little_however_many_are_open_on_a_psycopg_connection(
    is_one_transaction: bool, app: App, welcome: Any, dsn: str
) -> None:
    def cost(count: int) -> int:
        def work() -> None:
            for user in range(count):
                with nullcontext() if is_one_transaction else conn.transaction():
                    welcome.enqueue(user, connection=conn)

        with record(app) as recorder, psycopg.connect(dsn) as conn:
            conn.execute("SELECT")  # begins the transaction
            calls = count_calls(work)
            assert users(recorder.pending(conn)) == [*range(count)]
            conn.rollback()
            assert recorder.runs == recorder.pending() == []
            return calls

    cost(1)
    few, many = cost(20), cost(80)
    assert many < 5 * few, f"{few} calls for 20 runs, {many} for 80"


def test_two_recorders_follow_one_transaction(app: App, welcome: Any, dsn: str) -> None:
    other = App("other", dsn="host=127.0.0.1 port=1")
    greet = other.task(name="greet")(lambda user: None)
    with record(app) as recorder, record(other) as others, psycopg.connect(dsn) as conn:
        welcome.enqueue(1, connection=conn)
        greet.enqueue(2, connection=conn)
        with conn.transaction(force_rollback=True):
            greet.enqueue(3, connection=conn)
            welcome.enqueue(4, connection=conn)
        welcome.enqueue(5, connection=conn)
        assert users(recorder.pending(conn)) == [1, 5] and users(others.pending(conn)) == [2]
        conn.commit()
        assert users(recorder.runs) == [1, 5] and users(others.runs) == [2]


def test_what_a_handle_changes_on_a_psycopg_connection_ends_with_its_rollback(app: App, welcome: Any, dsn: str) -> None:
    async def cancel_async(run: Any) -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            assert await run.cancel_async(connection=conn) is State.CANCELLED
            await conn.rollback()
            assert await run.state_async() is State.QUEUED
            assert await run.cancel_async(connection=conn) is State.CANCELLED

    with record(app), psycopg.connect(dsn) as conn:
        one, two = welcome.enqueue(1), welcome.enqueue(2)
        one.cancel(connection=conn)
        with conn.transaction(force_rollback=True):
            two.cancel(connection=conn)
        assert (one.state(connection=conn), two.state()) == (State.CANCELLED, State.QUEUED)
        conn.rollback()
        assert one.state() is State.QUEUED
        with conn.transaction(force_rollback=True):
            one.update(priority=1, connection=conn)
        assert one.retry(connection=conn) is State.QUEUED
        conn.commit()
        assert one.info().priority == 5
        asyncio.run(cancel_async(two))
        assert two.state() is State.CANCELLED


# ---- SQLAlchemy with asyncio


URLS = {"psycopg": "postgresql+psycopg://", "asyncpg": "postgresql+asyncpg://"}


async def connect_asyncpg(dsn: str) -> Any:
    import asyncpg  # type: ignore[import-untyped,unused-ignore]
    from psycopg.conninfo import conninfo_to_dict

    given = conninfo_to_dict(dsn)
    return await asyncpg.connect(
        host=given["host"], port=given.get("port"), user=given.get("user"), password=given.get("password"),
        database=given["dbname"],
    )  # fmt: skip


@pytest.mark.parametrize("driver", URLS)
@pytest.mark.parametrize("kind", ["connection", "session", "scoped"])
@pytest.mark.parametrize("ending", ["commit", "rollback", "close"])
def test_runs_on_sqlalchemy_s_asyncio_count_after_their_commit(
    ending: str, kind: str, driver: str, app: App, welcome: Any, seen: list[Any], dsn: str
) -> None:
    @app.task(name="where")
    async def where() -> None:
        seen.append(asyncio.get_running_loop())

    async def creator() -> Any:
        return await (connect_asyncpg(dsn) if driver == "asyncpg" else psycopg.AsyncConnection.connect(dsn))

    async def main() -> None:
        engine = create_async_engine(URLS[driver], async_creator=creator)
        maker = async_sessionmaker(engine)
        given: Any = {
            "connection": engine.connect,
            "session": lambda: AsyncSession(engine),
            "scoped": lambda: async_scoped_session(maker, scopefunc=asyncio.current_task),
        }[kind]()
        if kind == "connection":
            await given.start()
        await where.enqueue_async(connection=given)
        await welcome.enqueue_async(1, connection=given)
        inner = await given.begin_nested()
        await welcome.enqueue_async(2, connection=given)
        await inner.rollback()
        assert users(enqueued(welcome, connection=given)) == [1] and seen == []
        await getattr(given, ending)()
        if kind == "connection":
            await recorder.drain_async()
        loop = asyncio.get_running_loop()
        assert seen == ([loop, 1] if ending == "commit" else []), "a session runs it at its commit, in the test's loop"
        await given.close()
        await engine.dispose()

    with inline(app) as recorder:
        asyncio.run(main())
