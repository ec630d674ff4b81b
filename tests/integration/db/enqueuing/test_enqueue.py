"""Enqueueing one run: its row, the caller's own transaction, unique keys, and connections that break."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from pgsched import App, DatabaseUnreachable, InputError
from pgsched.app.options import OPTIONS
from pgsched.app.task import Task
from pgsched.core import payload
from pgsched.db.connection.reuse import is_alive
from pgsched.db.queries.runs.enqueue import enqueue

pytestmark = [pytest.mark.pg14, pytest.mark.packages]

Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture
def greet(dsn: str) -> Any:
    app = App("test", dsn=dsn)

    @app.task(name="greet", queue="mail", timeout=30)
    def greet(name: str) -> None: ...

    yield greet
    app.close()


def run_of(db: psycopg.Connection[Any], run_id: int) -> dict[str, Any]:
    with db.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute("SELECT * FROM pgsched.runs WHERE id = %s", [run_id]).fetchone()
    assert row is not None
    return row


def count(db: psycopg.Connection[Any]) -> int:
    row = db.execute("SELECT count(*) FROM pgsched.runs").fetchone()
    assert row is not None
    return int(row[0])


def test_an_enqueued_run_is_queued_with_the_options_of_its_task(
    greet: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    run = run_of(db, greet.enqueue("Ada"))
    assert (run["task"], run["args"], run["queue"], run["state"]) == ("greet", {"name": "Ada"}, "mail", "queued")
    assert (run["timeout"], run["priority"], run["max_attempts"]) == (timedelta(seconds=30), 5, 3)
    assert (run["job_id"], run["origin"], run["kind"]) == (None, "enqueue", "task")


def test_sync_and_async_enqueue_make_the_same_row(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    async def main() -> int:
        try:
            return await greet.options(priority=1).enqueue_async(name="Ada")
        finally:
            await greet.app.close_async()

    rows = [run_of(db, run_id) for run_id in (greet.options(priority=1).enqueue("Ada"), asyncio.run(main()))]
    for row in rows:
        del row["id"], row["available_at"], row["created_at"]
    assert rows[0] == rows[1]


def test_options_become_columns(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    options = {"queue": "slow", "priority": 0, "max_attempts": 7, "timeout": timedelta(minutes=2), "unique_key": "k"}
    run = run_of(db, greet.options(**options).enqueue("Ada"))
    assert options.items() <= run.items()


def test_a_delayed_run_is_made_as_scheduled(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    at = datetime(2100, 1, 1, tzinfo=UTC)
    assert run_of(db, greet.options(at=at).enqueue("Ada"))["available_at"] == at
    run = run_of(db, greet.options(delay=3600).enqueue("Ada"))
    assert run["state"] == "scheduled"
    assert timedelta(seconds=3590) < run["available_at"] - run["created_at"] < timedelta(seconds=3610)


@pytest.mark.parametrize("commits", [True, False])
def test_the_run_commits_or_rolls_back_with_the_callers_work(
    greet: Task[Any, Any], db: psycopg.Connection[Any], connect: Connect, commits: bool
) -> None:
    mine = connect(autocommit=False, row_factory=dict_row)
    greet.enqueue("Ada", connection=mine)
    greet.options(connection=mine).enqueue("Bob")
    assert count(db) == 0
    mine.commit() if commits else mine.rollback()
    assert count(db) == (2 if commits else 0)


@pytest.mark.parametrize("commits", [True, False])
def test_the_async_form_joins_the_callers_transaction_too(
    greet: Task[Any, Any], db: psycopg.Connection[Any], dsn: str, commits: bool
) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as mine:
            await greet.enqueue_async("Ada", connection=mine)
            await (mine.commit() if commits else mine.rollback())

    asyncio.run(main())
    assert count(db) == int(commits)


def test_a_connection_of_the_wrong_form_is_refused(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    with pytest.raises(InputError, match=r"expected a psycopg.AsyncConnection, got a psycopg.Connection"):
        asyncio.run(greet.enqueue_async("Ada", connection=db))
    with pytest.raises(InputError, match=r"expected a connection, or an alias of Django's DATABASES, got a text"):
        greet.enqueue("Ada", connection="postgresql://")


def test_a_unique_key_gives_one_unfinished_run(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    first, second = greet.options(unique_key="k").enqueue("Ada"), greet.options(unique_key="k").enqueue("Bob")
    assert first == second and run_of(db, first)["args"] == {"name": "Ada"}
    assert greet.options(unique_key="l").enqueue("Ada") != first
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE id = %s", [first])
    assert greet.options(unique_key="k").enqueue("Ada") != first


def test_many_clients_with_one_unique_key_make_one_run(db: psycopg.Connection[Any], connect: Connect) -> None:
    values = dict.fromkeys(OPTIONS.keys() - {"unique_key"})
    connections, found = [connect() for _ in range(8)], set()
    start = threading.Barrier(8)

    def client(conn: psycopg.Connection[Any]) -> None:
        start.wait(10)
        for _ in range(50):
            found.add(enqueue(conn, task="t", args="{}", unique_key="k", **values))

    threads = [threading.Thread(target=client, args=[conn]) for conn in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(db) == len(found) == 1


def test_an_enqueue_waits_for_the_transaction_that_holds_its_key(
    greet: Task[Any, Any], db: psycopg.Connection[Any], connect: Connect
) -> None:
    holder, found = connect(autocommit=False), []
    first = greet.options(unique_key="k", connection=holder).enqueue("Ada")
    waiting = threading.Thread(target=lambda: found.append(greet.options(unique_key="k").enqueue("Bob")))
    waiting.start()
    waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    while not db.execute(waits).fetchall():
        waiting.join(0.01)
    holder.commit()
    waiting.join()
    assert found == [first]


def end_sessions(db: psycopg.Connection[Any]) -> None:
    """End every enqueueing session of this database, and wait until it is gone."""
    mine = "FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pgsched enqueue%'"
    assert db.execute(f"SELECT pg_terminate_backend(pid, 10000) {mine}").fetchall() != []


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(
    greet: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    greet.enqueue("Ada")
    end_sessions(db)
    greet.enqueue("Bob")
    assert count(db) == 2


def test_the_async_connection_is_replaced_too(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    async def main() -> None:
        await greet.enqueue_async("Ada")
        end_sessions(db)
        await asyncio.gather(*[greet.enqueue_async(str(number)) for number in range(20)])
        await greet.app.close_async()

    asyncio.run(main())
    assert count(db) == 21


def test_a_notice_does_not_make_a_connection_look_dead(connect: Connect, db: psycopg.Connection[Any]) -> None:
    listener = connect()
    listener.execute("LISTEN x")
    db.execute("NOTIFY x")
    assert next(listener.notifies(timeout=10, stop_after=1)).channel == "x"
    assert is_alive(listener)


def test_every_thread_has_a_connection_of_its_own(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    def client() -> None:
        for _ in range(10):
            greet.enqueue("Ada")
        greet.app.close()

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(db) == 40


def test_without_a_server_the_error_says_so() -> None:
    task = App("test", dsn="host=127.0.0.1 port=1 connect_timeout=1").task(lambda: None)
    with pytest.raises(DatabaseUnreachable, match="cannot reach the database"):
        task.enqueue()
    with pytest.raises(DatabaseUnreachable, match="cannot reach the database"):
        asyncio.run(task.enqueue_async())


def test_arguments_that_only_the_database_finds_too_large_are_refused(
    greet: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    values = dict.fromkeys(OPTIONS)
    with pytest.raises(psycopg.errors.CheckViolation):
        enqueue(db, task="t", args=f"[{'1,' * 400_000}1]", **values)


VALUES = [
    None, True, 0, 1, -1, 12345, 10**30, -(10**999), 0.1, 1e300, 1.5e-300, 123456.789e-5,
    "", "x", "é" * 9, "x" * 5000, [], {},
    [[]] * 50, [{}] * 50, [""] * 50, [1] * 1000, [0.5] * 1000, list(range(1000)), {"a": 1, "b": [True, None, "c"]},
    {str(number): number for number in range(1000)}, [{"n": 1.25, "s": "ab"}] * 300,
]  # fmt: skip


def test_the_size_that_is_checked_is_never_less_than_what_is_stored(db: psycopg.Connection[Any]) -> None:
    for value in VALUES:
        text = payload.encode([value])
        row = db.execute("SELECT pg_column_size(%s::text::jsonb)", [text]).fetchone()
        assert row is not None and payload.stored_bytes([value]) >= row[0] - 8, str(value)[:60]
        assert len(text.encode()) * payload.WORST_GROWTH + 100 >= row[0], str(value)[:60]
