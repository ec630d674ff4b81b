"""Waiting for runs: every end is found, by a notification or by polling, and errors of the database end the wait."""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.db import run_waiter
from pgsched.db.run_tickets import States, Ticket
from pgsched.db.run_waiter import RunWaiter
from pgsched.errors import DatabaseUnreachable, PgschedError, SchemaTooOld
from tests.support.logins import Logins
from tests.support.sessions import SESSIONS
from tests.support.waiting import wait_until

Open = Callable[..., psycopg.Connection[Any]]
WAITERS = f"{SESSIONS} AND application_name LIKE 'pgsched wait%'"
CUT = WAITERS.replace("count(*)", "pg_terminate_backend(pid, 10000)")
CANCEL = "SELECT pgsched.cancel(id) FROM pgsched.runs WHERE id = ANY (%s)"


@pytest.fixture
def waiter(dsn: str) -> Iterator[RunWaiter]:
    waiter = RunWaiter(lambda: dsn)
    yield waiter
    waiter.close()


def enqueue(db: psycopg.Connection[Any], n: int = 1) -> list[int]:
    return [row[0] for row in db.execute("SELECT pgsched.enqueue('t') FROM generate_series(1, %s)", [n])]


def awaited(db: psycopg.Connection[Any], n: int = 1) -> None:
    """Wait until so many runs are marked."""
    wait_until(lambda: db.execute("SELECT count(*) FROM pgsched.runs WHERE awaited").fetchone() == (n,), 10)


def waiting_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "pgsched-wait"}


def test_a_run_that_has_ended_or_is_not_there_is_told_at_once(db: psycopg.Connection[Any], waiter: RunWaiter) -> None:
    (run,) = enqueue(db)
    db.execute(CANCEL, [[run]])
    assert waiter.wait([run, 4711], 10) == {run: "cancelled", 4711: None}
    assert waiter.wait([], 10) == {}


def test_the_end_of_a_run_wakes_the_waiter(
    db: psycopg.Connection[Any], waiter: RunWaiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_waiter, "LOOK_AT_LEAST_S", 3600.0)  # only a notification can tell
    made = enqueue(db, 3)
    with ThreadPoolExecutor() as pool:
        one, all_of_them = pool.submit(waiter.wait, made[:1], 30), pool.submit(waiter.wait, made, 30)
        awaited(db, 3)
        db.execute(CANCEL, [made[:1]])
        assert one.result(10) == {made[0]: "cancelled"}
        assert not all_of_them.done()
        db.execute(CANCEL, [made])
        assert all_of_them.result(10) == dict.fromkeys(made, "cancelled")


@pytest.mark.parametrize("read_by", ["libpq", "psycopg"])
def test_a_notification_that_comes_with_an_answer_is_heard(
    db: psycopg.Connection[Any], waiter: RunWaiter, monkeypatch: pytest.MonkeyPatch, read_by: str
) -> None:
    monkeypatch.setattr(run_waiter, "LOOK_AT_LEAST_S", 3600.0)
    (run,) = enqueue(db)
    look, looks = run_waiter.look, list[States]()

    def look_and_read_ahead(conn: psycopg.Connection[Any], tickets: Sequence[Ticket]) -> States:
        looks.append(look(conn, tickets))
        if len(looks) == 1:
            db.execute(CANCEL, [[run]])
            assert select.select([conn.fileno()], [], [], 10)[0]
            if read_by == "libpq":
                conn.pgconn.consume_input()  # libpq has the notification now, and the socket has nothing left
            else:
                conn.execute("SELECT 1")  # psycopg calls the handler of notifications
        return looks[-1]

    monkeypatch.setattr(run_waiter, "look", look_and_read_ahead)
    assert waiter.wait([run], 10) == {run: "cancelled"}


def test_a_wait_in_asyncio_leaves_the_event_loop_free(db: psycopg.Connection[Any], waiter: RunWaiter) -> None:
    made = enqueue(db, 2)

    async def main() -> list[States]:
        waits = [asyncio.create_task(waiter.wait_async([run], 30)) for run in made]
        await asyncio.to_thread(awaited, db, 2)
        db.execute(CANCEL, [made])
        return list(await asyncio.gather(*waits))

    assert asyncio.run(main()) == [{run: "cancelled"} for run in made]


@pytest.mark.long
def test_the_time_limit_gives_what_has_ended_until_then(db: psycopg.Connection[Any], waiter: RunWaiter) -> None:
    first, second = enqueue(db, 2)
    db.execute(CANCEL, [[first]])
    assert waiter.wait([first, second], 0.5) == {first: "cancelled"}
    assert asyncio.run(waiter.wait_async([first, second], 0.5)) == {first: "cancelled"}


def test_a_run_that_is_locked_is_marked_when_it_is_free(
    db: psycopg.Connection[Any], waiter: RunWaiter, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_waiter, "LOOK_AT_LEAST_S", 3600.0)
    (run,) = enqueue(db)
    with ThreadPoolExecutor() as pool:
        with connect(autocommit=False) as other:
            other.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [run])
            found = pool.submit(waiter.wait, [run], 30)
            wait_until(lambda: db.execute(WAITERS).fetchone() == (1,), 10)
        awaited(db)
        db.execute(CANCEL, [[run]])
        assert found.result(10) == {run: "cancelled"}


def test_a_lost_notification_is_made_up_for(
    db: psycopg.Connection[Any], waiter: RunWaiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_waiter, "LOOK_AT_LEAST_S", 0.2)
    (run,) = enqueue(db)
    with ThreadPoolExecutor() as pool:
        found = pool.submit(waiter.wait, [run], 30)
        awaited(db)
        db.execute("ALTER TABLE pgsched.runs DISABLE TRIGGER e_awaited")
        db.execute(CANCEL, [[run]])
        assert found.result(10) == {run: "cancelled"}


def test_a_login_that_only_reads_runs_is_told_by_the_next_look(
    db: psycopg.Connection[Any], logins: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_waiter, "LOOK_AT_LEAST_S", 0.2)
    (run,) = enqueue(db)
    waiter = RunWaiter(lambda: logins.dsn("eye"))
    with ThreadPoolExecutor() as pool:
        found = pool.submit(waiter.wait, [run], 30)
        wait_until(lambda: db.execute(WAITERS).fetchone() == (1,), 10)
        db.execute(CANCEL, [[run]])
        assert found.result(10) == {run: "cancelled"}
    assert db.execute("SELECT awaited FROM pgsched.runs").fetchone() == (None,), "it may not mark the run"
    waiter.close()


def test_a_wait_outlives_the_loss_of_its_connection(
    db: psycopg.Connection[Any], waiter: RunWaiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_waiter, "LOOK_AT_LEAST_S", 3600.0)
    (run,) = enqueue(db)
    with ThreadPoolExecutor() as pool:
        found = pool.submit(waiter.wait, [run], 30)
        awaited(db)
        db.execute(CUT)
        db.execute(CANCEL, [[run]])  # before or after it listens again
        assert found.result(20) == {run: "cancelled"}


def test_a_connection_that_is_lost_while_nobody_waits_is_not_missed(
    db: psycopg.Connection[Any], waiter: RunWaiter, caplog: pytest.LogCaptureFixture
) -> None:
    before = waiting_threads()
    waiter.wait([4711], 10)
    assert waiting_threads() - before
    db.execute(CUT)
    wait_until(lambda: not waiting_threads() - before, 10)
    assert not caplog.records
    assert waiter.wait([4711], 10) == {4711: None}


@pytest.mark.long
def test_an_unreachable_database_ends_the_wait_when_its_time_is_over() -> None:
    waiter = RunWaiter(lambda: "host=127.0.0.1 port=1 dbname=none")
    began = time.monotonic()
    with pytest.raises(DatabaseUnreachable):
        waiter.wait([1], 1.0)
    assert time.monotonic() - began > 0.9
    waiter.close()


def test_a_database_without_our_schema_ends_the_wait_at_once(db: psycopg.Connection[Any], waiter: RunWaiter) -> None:
    db.execute("ALTER SCHEMA pgsched RENAME TO other")
    with pytest.raises(SchemaTooOld):
        waiter.wait([1], 60)


@pytest.mark.long
def test_the_thread_and_its_connection_end_when_nobody_waits(
    db: psycopg.Connection[Any], waiter: RunWaiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = waiting_threads()
    monkeypatch.setattr(run_waiter, "IDLE_S", 0.1)
    waiter.wait([4711], 10)
    wait_until(lambda: not waiting_threads() - before, 10)
    monkeypatch.setattr(run_waiter, "IDLE_S", 60)
    assert waiter.wait([4711], 10) == {4711: None}, "the next wait starts them again"


def test_a_closed_waiter_serves_those_that_wait_with_a_new_connection(
    db: psycopg.Connection[Any], waiter: RunWaiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_waiter, "LOOK_AT_LEAST_S", 3600.0)
    (run,) = enqueue(db)
    with ThreadPoolExecutor() as pool:
        found = pool.submit(waiter.wait, [run], 30)
        awaited(db)
        waiter.close()
        db.execute(CANCEL, [[run]])
        assert found.result(10) == {run: "cancelled"}


def test_a_forked_process_waits_by_itself(db: psycopg.Connection[Any], waiter: RunWaiter) -> None:
    waiter.wait([4711], 10)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if waiter.wait([4711], 10) == {4711: None} else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert waiter.wait([4711], 10) == {4711: None}


@pytest.mark.parametrize("raised", [OSError("no room"), SystemExit(3)], ids=["error", "exit"])
def test_a_thread_that_cannot_go_on_fails_its_waits_and_is_replaced(
    db: psycopg.Connection[Any], waiter: RunWaiter, monkeypatch: pytest.MonkeyPatch, raised: BaseException
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise raised

    with monkeypatch.context() as patched:
        patched.setattr(run_waiter, "connect", refuse)
        with pytest.raises(PgschedError, match=r"waiting for runs failed: .*; the runs go on: wait for them again"):
            waiter.wait([4711], 30)
    assert waiter.wait([4711], 10) == {4711: None}


def test_a_wait_for_which_no_thread_can_start_fails_and_leaves_nothing_open(
    db: psycopg.Connection[Any], waiter: RunWaiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = open_files()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            with pytest.raises(PgschedError, match="can't start new thread; the runs go on: wait for them again"):
                waiter.wait([4711], 30)
    assert open_files() == before
    assert waiter.wait([4711], 10) == {4711: None}


def open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_a_wait_that_was_cancelled_before_it_began_keeps_no_thread_busy(db: psycopg.Connection[Any], dsn: str) -> None:
    (run,) = enqueue(db)
    asked, go = threading.Event(), threading.Event()

    def find_dsn() -> str:
        asked.set()
        go.wait(10)
        return dsn

    waiter = RunWaiter(find_dsn)

    async def main() -> None:
        waits = asyncio.create_task(waiter.wait_async([run], 30))
        await asyncio.to_thread(asked.wait, 10)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        go.set()
        assert await waiter.wait_async([4711], 10) == {4711: None}

    asyncio.run(main())
    assert db.execute("SELECT awaited FROM pgsched.runs").fetchone() == (None,)
    waiter.close()


def test_a_forked_process_inherits_no_connection_of_a_waiter_without_waits(
    db: psycopg.Connection[Any], waiter: RunWaiter
) -> None:
    before = open_files()
    waiter.wait([4711], 10)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if open_files() <= before else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_fork_leaves_the_waits_of_the_parent_to_the_parent(db: psycopg.Connection[Any], waiter: RunWaiter) -> None:
    (run,) = enqueue(db)
    with ThreadPoolExecutor() as pool:
        found = pool.submit(waiter.wait, [run], 30)
        awaited(db)
        pid = os.fork()
        if pid == 0:
            waiter.close()
            os._exit(len(waiting_threads()))
        assert os.waitpid(pid, 0)[1] == 0
        db.execute(CANCEL, [[run]])
        assert found.result(10) == {run: "cancelled"}


def test_more_runs_than_one_statement_takes_are_awaited(
    db: psycopg.Connection[Any], waiter: RunWaiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_waiter.outcomes, "MOST", 10)
    made = enqueue(db, 25)
    with ThreadPoolExecutor() as pool:
        found = pool.submit(waiter.wait, made, 30)
        awaited(db, 25)
        db.execute(CANCEL, [made])
        assert found.result(10) == dict.fromkeys(made, "cancelled")
