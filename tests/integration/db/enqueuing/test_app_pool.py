"""The blocking connections that an App opens: a few, which all threads share."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import psycopg
import pytest

from pgsched import App, DatabaseUnreachable
from pgsched.app.task import Task
from pgsched.db.connection.connect import CONNECT_ATTEMPTS, connect
from pgsched.db.connection.shared_pool import SharedPool
from tests.support.apps.app_pool import closers, in_threads, runs, sessions
from tests.support.server import PrivateCluster
from tests.support.waiting import wait_until


@pytest.fixture
def task(app: App) -> Task[Any, Any]:
    @app.task(name="one")
    def one(n: int) -> None: ...

    return one


def test_fifty_threads_share_four_connections(task: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    def client(n: int) -> None:
        for k in range(4):
            task.enqueue(4 * n + k)

    before = CONNECT_ATTEMPTS["enqueue"]
    in_threads(50, client)
    assert runs(db) == list(range(200))
    assert 1 <= CONNECT_ATTEMPTS["enqueue"] - before <= 4


def test_one_thread_uses_one_connection(task: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    for n in range(10):
        task.enqueue(n)
    assert len(sessions(db)) == 1


def test_the_size_of_the_pool_is_the_callers(dsn: str, db: psycopg.Connection[Any]) -> None:
    app = App("test", dsn=dsn, pool_size=2)
    task = app.task(lambda: None, name="one")
    in_threads(12, lambda _: task.enqueue())
    assert 1 <= len(sessions(db)) <= 2
    app.close()


def test_a_thread_that_finds_no_connection_for_too_long_gets_an_error(dsn: str) -> None:
    pool = SharedPool(lambda: connect(dsn), 1, patience_s=0.05)
    taken, go_on = threading.Event(), threading.Event()
    holder = threading.Thread(target=pool.use, args=[lambda _: (taken.set(), go_on.wait(30))])
    holder.start()
    assert taken.wait(10)
    with pytest.raises(DatabaseUnreachable, match=r"all 1 database connections of this App .* nothing was sent"):
        pool.use(lambda _: pytest.fail("lent twice"))
    go_on.set()
    holder.join()
    assert pool.use(lambda conn: conn.execute("SELECT 1").fetchone()) == (1,)
    pool.close()


def test_an_asyncio_call_that_waits_for_a_thread_too_long_gets_an_error(dsn: str) -> None:
    pool = SharedPool(lambda: connect(dsn), 1, patience_s=0.05)
    taken, go_on, made = threading.Event(), threading.Event(), []

    def hold(_: Any) -> None:
        taken.set()
        assert go_on.wait(10)

    async def main() -> None:
        first = asyncio.create_task(pool.run_in_thread(lambda: pool.use(hold)))
        await asyncio.to_thread(taken.wait, 10)
        with pytest.raises(DatabaseUnreachable, match=r"all 1 database connections .* in use.*nothing was sent"):
            await pool.run_in_thread(lambda: pool.use(made.append))
        assert not first.done()
        go_on.set()
        await first
        assert await pool.run_in_thread(lambda: pool.use(lambda conn: conn.info.dbname))

    asyncio.run(main())
    assert made == []
    pool.close()


def test_idle_connections_are_closed_although_nothing_is_called(dsn: str, db: psycopg.Connection[Any]) -> None:
    pool = SharedPool(lambda: connect(dsn, purpose="enqueue"), 4, idle_s=0.2)
    start = threading.Barrier(3)
    in_threads(3, lambda _: pool.use(lambda _: start.wait(10)))
    assert len(sessions(db)) == 3
    wait_until(lambda: not sessions(db), what="closed connections")
    wait_until(lambda: not closers(), what="the end of the thread that closes them")
    pool.use(lambda conn: conn.execute("SELECT 1"))
    assert (len(sessions(db)), len(closers())) == (1, 1)
    pool.close()
    wait_until(lambda: not closers(), what="the end of the thread that closes them")


def test_a_connection_in_use_is_not_closed_for_being_idle(dsn: str, db: psycopg.Connection[Any]) -> None:
    pool = SharedPool(lambda: connect(dsn, purpose="enqueue"), 4, idle_s=0.05)
    pids = set()
    pool.use(lambda conn: pids.add(conn.info.backend_pid))
    ends = time.monotonic() + 0.4
    while time.monotonic() < ends:
        pool.use(lambda conn: pids.add(conn.execute("SELECT pg_backend_pid()").fetchone()[0]))  # type: ignore[index]
    assert len(pids) == 1
    pool.close()


def test_a_pool_that_is_dropped_takes_its_thread_along(dsn: str) -> None:
    pool = SharedPool(lambda: connect(dsn), 4)
    pool.use(lambda conn: conn.execute("SELECT 1"))
    assert len(closers()) == 1
    with pytest.warns(ResourceWarning, match="deleted while still open"):
        del pool
        # the thread may be the last to let go of it
        wait_until(lambda: gc.collect() >= 0 and not closers(), what="the end of the thread")


def test_close_closes_the_connections_of_all_threads(task: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    in_threads(8, task.enqueue)
    assert sessions(db)
    task.app.close()
    wait_until(lambda: not sessions(db), what="closed connections")
    task.enqueue(8)
    assert runs(db) == list(range(9))


def test_a_connection_in_use_is_closed_after_close(dsn: str, db: psycopg.Connection[Any]) -> None:
    pool = SharedPool(lambda: connect(dsn, purpose="enqueue"), 1)

    def work(conn: Any) -> Any:
        pool.close()
        return conn.execute("SELECT 1").fetchone()

    assert pool.use(work) == (1,)
    wait_until(lambda: not sessions(db), what="a closed connection")


def test_a_connection_that_breaks_in_the_middle_is_replaced(task: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    task.enqueue(0)

    def end(conn: Any) -> None:
        db.execute("SELECT pg_terminate_backend(%s, 10000)", [conn.info.backend_pid])
        conn.execute("SELECT 1")

    with pytest.raises(DatabaseUnreachable, match="the run may have been made"):
        task.app.database.send(None, end, maybe="the run may have been made")
    in_threads(8, task.enqueue)
    assert runs(db) == [0, *range(8)]


def test_a_signal_handler_may_enqueue_while_its_thread_does(task: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    made = []
    task.enqueue(0)
    before = signal.signal(signal.SIGALRM, lambda *_: made.append(task.enqueue(1)))
    try:
        for n in range(299):
            signal.setitimer(signal.ITIMER_REAL, 0.0001 + n % 20 * 0.00005)  # somewhere in the next enqueue
            task.enqueue(0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert runs(db) == [0] * 300 + [1] * len(made)


@pytest.mark.long
def test_a_restart_of_the_server_between_two_uses_is_not_noticed(private_cluster: PrivateCluster) -> None:
    pool = SharedPool(lambda: connect(private_cluster.dsn), 4)
    start = threading.Barrier(4)
    in_threads(4, lambda _: pool.use(lambda _: start.wait(10)))
    private_cluster.stop("fast")
    private_cluster.start()
    start = threading.Barrier(4)
    answers: list[Any] = []

    def ask(conn: Any) -> None:
        start.wait(10)
        answers.append(conn.execute("SELECT 1").fetchone())

    in_threads(4, lambda _: pool.use(ask))
    assert answers == [(1,)] * 4
    pool.close()


EXITS = """
import atexit, sys, threading
from pgsched import App
app = App("test", dsn=sys.argv[1])
task = app.task(lambda n: None, name="one")
atexit.register(lambda: task.enqueue(2))
task.enqueue(0)
thread = threading.Thread(target=task.enqueue, args=[1])
thread.start()
thread.join()
"""


def test_a_program_with_open_connections_ends_at_once(dsn: str, db: psycopg.Connection[Any]) -> None:
    done = subprocess.run([sys.executable, "-c", EXITS, dsn], timeout=30, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert runs(db) == [0, 1, 2]
