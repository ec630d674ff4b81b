"""A forked child uses and closes none of the connections that an App of its parent has opened."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.app.task import Task
from pgsched.db.connection.connect import connect
from pgsched.db.connection.shared_pool import SharedPool
from tests.support.apps.app_pool import in_threads, runs, sessions

FAILED = 99


@pytest.fixture
def task(app: App) -> Task[Any, Any]:
    @app.task(name="one")
    def one(n: int) -> None: ...

    return one


def in_child(work: Callable[[], object]) -> None:
    """Call `work` in a forked process, and expect that it raises nothing."""
    child = os.fork()
    if child == 0:
        code = FAILED
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_child_has_connections_of_its_own(task: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    """As in gunicorn with --preload: the app has enqueued before the fork."""
    in_threads(4, task.enqueue)

    def work() -> None:
        for n in range(10, 20):
            task.enqueue(n)
        asyncio.run(task.enqueue_async(20))
        task.app.close()

    in_child(work)
    task.enqueue(4)
    in_child(work)
    task.enqueue(5)
    assert runs(db) == sorted([*range(6), *[*range(10, 21)] * 2])
    assert len(sessions(db)) <= 2


@pytest.mark.long
def test_a_child_leaves_an_idle_connection_to_a_parent_that_was_not_told(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uWSGI forks in C, and tells Python of it in the child only."""
    pool = SharedPool(lambda: connect(dsn), 4)
    pids: list[int] = []

    def note(conn: Any) -> None:
        pids.append(conn.execute("SELECT pg_backend_pid()").fetchone()[0])

    pool.use(note)
    monkeypatch.setattr(pool, "before_fork", lambda: None)

    def work() -> None:
        pool.use(note)
        pool.close()
        gc.collect()
        assert pids[0] != pids[1]

    in_child(work)
    pool.use(note)
    assert pids[0] == pids[1]
    pool.close()


@pytest.mark.long
def test_a_fork_while_threads_enqueue_blocks_nobody(task: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    stop = threading.Event()

    def client(n: int) -> None:
        while not stop.is_set():
            task.enqueue(n)

    threads = [threading.Thread(target=client, args=[1]) for _ in range(6)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            in_child(lambda: task.enqueue(2))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert runs(db).count(2) == 5


def test_a_fork_inside_a_call_leaves_the_connection_to_the_parent(dsn: str) -> None:
    pool = SharedPool(lambda: connect(dsn), 1)
    children: list[int] = []

    def work(conn: Any) -> Any:
        if (child := os.fork()) == 0:
            return None
        children.append(os.waitpid(child, 0)[1])
        return conn.execute("SELECT 1").fetchone()

    parent = os.getpid()
    try:
        found = pool.use(work)
        if os.getpid() != parent:
            os._exit(0 if pool.use(lambda conn: conn.execute("SELECT 2").fetchone()) == (2,) else FAILED)
    finally:
        if os.getpid() != parent:
            os._exit(FAILED)
    assert (found, children) == ((1,), [0])
    pool.close()
