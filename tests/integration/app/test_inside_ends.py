"""How a worker inside a program ends: its drain, errors, forks, and the end of the program."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import psycopg
import pytest

from pgsched import App, PgschedError
from tests.support.hosting.inside import QUICK, add_waiting_task, alive, becomes, play, states
from tests.support.paths import ROOT
from tests.support.waiting import wait_until


@pytest.fixture
def begun(app: App) -> threading.Event:
    return add_waiting_task(app)


def test_the_end_of_the_block_lets_a_running_handler_finish(
    app: App, db: psycopg.Connection[Any], begun: threading.Event
) -> None:
    async def scene() -> None:
        async with app.worker(**QUICK):
            await app.tasks["waits"].enqueue_async(1.0)
            await becomes(begun.is_set)
        assert states(db) == {"waits": "succeeded"}
        await app.close_async()

    play(scene)


@pytest.mark.parametrize("form", ["async", "thread"])
def test_a_handler_that_takes_longer_than_grace_is_stopped_and_costs_no_attempt(
    form: str, app: App, db: psycopg.Connection[Any], begun: threading.Event
) -> None:
    async def scene() -> None:
        async with app.worker(**QUICK | {"grace": 0.2}):
            await becomes(begun.is_set)

    app.tasks["waits"].enqueue()
    if form == "async":
        play(scene)
    else:
        with app.worker(**QUICK | {"grace": 0.2}):
            wait_until(begun.is_set, 20)
    assert db.execute("SELECT state::text, attempt FROM pgsched.runs").fetchone() == ("queued", 0)


@pytest.mark.parametrize("form", ["async", "thread"])
def test_a_stop_before_the_end_of_the_block_leaves_the_grace_time(
    form: str, app: App, db: psycopg.Connection[Any], begun: threading.Event
) -> None:
    async def scene() -> None:
        async with app.worker(**QUICK) as worker:
            await becomes(begun.is_set)
            worker.stop()

    app.tasks["waits"].enqueue(1.0)
    if form == "async":
        play(scene)
    else:
        with app.worker(**QUICK) as worker:
            wait_until(begun.is_set, 20)
            worker.stop()
    assert states(db) == {"waits": "succeeded"}


def test_a_second_stop_hurries(app: App, db: psycopg.Connection[Any], begun: threading.Event) -> None:
    app.tasks["waits"].enqueue()
    with app.worker(**QUICK | {"grace": 50.0}) as worker:
        wait_until(begun.is_set, 20)
        worker.stop()
        worker.stop()
    assert states(db) == {"waits": "queued"}


def test_an_exception_in_the_block_drains_and_goes_on(
    app: App, db: psycopg.Connection[Any], begun: threading.Event
) -> None:
    async def scene() -> None:
        with pytest.raises(ZeroDivisionError):
            async with app.worker(**QUICK):
                await becomes(begun.is_set)
                raise ZeroDivisionError
        assert states(db) == {"waits": "succeeded"}

    app.tasks["waits"].enqueue(1.0)
    play(scene)
    with pytest.raises(ZeroDivisionError), app.worker(**QUICK):
        raise ZeroDivisionError
    assert alive(db) == 0


def test_an_error_that_ends_it_is_kept_and_logged_and_the_program_goes_on(
    app: App, db: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    told: list[PgschedError] = []
    with app.worker(**QUICK, on_fatal=told.append) as worker:
        db.execute("DROP SCHEMA pgsched CASCADE")
        wait_until(lambda: not worker.is_running, 30, "the end of the worker")
        assert worker.error is not None and told == [worker.error]
    assert any("has ended" in record.getMessage() for record in caplog.records)


def test_a_drain_that_an_operator_asked_for_is_told(
    app: App, db: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    told: list[PgschedError] = []
    with app.worker(**QUICK, on_fatal=told.append) as worker:
        db.execute("UPDATE pgsched.workers SET drain_asked_at = now(), drain_asked_by = 'ada'")
        wait_until(lambda: not worker.is_running, 30, "the end of the worker")
    assert str(worker.error) == "ada asked it to drain, and it has drained: start another worker"
    assert told == [worker.error]
    assert any("has ended" in record.getMessage() for record in caplog.records)


def test_a_forked_process_may_not_use_its_parent_s_worker(app: App, db: psycopg.Connection[Any]) -> None:
    with app.worker(**QUICK) as worker:
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            try:
                for call in (worker.stop, worker.close, lambda: worker.__exit__(None, None, None), worker.start):
                    with pytest.raises(PgschedError, match="was forked"):
                        call()
                assert not worker.is_running
                os.write(write, b"refused")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 100) == b"refused"
        assert worker.is_running and alive(db) == 1
    for end in (read, write):
        os.close(end)


def test_a_started_worker_drains_when_the_program_ends(dsn: str, db: psycopg.Connection[Any]) -> None:
    program = """
    import asyncio, threading
    from pgsched import App
    app, begun = App("script"), threading.Event()
    @app.task(name="t")
    async def t() -> None:
        begun.set()
        await asyncio.sleep(0.5)
    app.worker(poll=0.1).start()
    t.enqueue()
    begun.wait(20)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT, env=os.environ | {"PGSCHED_DSN": dsn}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert states(db) == {"t": "succeeded"} and alive(db) == 0


@pytest.mark.long
def test_several_workers_drain_at_the_same_time_when_the_program_ends(dsn: str, db: psycopg.Connection[Any]) -> None:
    program = """
    import asyncio, threading
    from pgsched import App
    apps, begun = [App(name) for name in ("one", "two")], [threading.Event(), threading.Event()]
    for app, event in zip(apps, begun):
        @app.task(name=app.name)
        async def t(event=event) -> None:
            event.set()
            await asyncio.sleep(4)
        app.worker(poll=0.1).start()
        t.enqueue()
    for event in begun:
        event.wait(20)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT, env=os.environ | {"PGSCHED_DSN": dsn}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert states(db) == {"one": "succeeded", "two": "succeeded"}
    row = db.execute("SELECT max(stopping_at) - min(stopping_at) < '3 seconds' FROM pgsched.workers").fetchone()
    assert row == (True,)


def test_a_handler_that_blocks_its_loop_does_not_hold_the_program_for_ever(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pgsched.client import inside

    monkeypatch.setattr(inside, "LAST_S", -9.5)
    begun, go = threading.Event(), threading.Event()

    @app.task(name="blocks")
    async def blocks() -> None:
        begun.set()
        go.wait()

    app.tasks["blocks"].enqueue()
    with app.worker(**QUICK | {"grace": 0.0, "kill_after_most": 0.0}) as worker:
        wait_until(begun.is_set, 20)
    assert "blocks its event loop" in str(worker.error)
    go.set()
    wait_until(lambda: not worker.is_running, 30)


def test_the_end_of_the_block_of_a_worker_that_never_started_waits_for_nothing(app: App) -> None:
    async def scene() -> None:
        worker = app.worker(**QUICK)
        with pytest.raises(PgschedError, match="use async with"):
            worker.start()
        worker.close()
        assert worker.error is None

    before = time.monotonic()
    play(scene)
    assert time.monotonic() < before + 20


def test_a_start_without_a_thread_or_an_event_loop_is_an_error(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    for place, name, call in ((asyncio.events, "new_event_loop", none_left), (threading.Thread, "start", no_thread)):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, call)
            worker = app.worker(**QUICK)
            with pytest.raises(PgschedError, match=r"cannot start: .*(Too many open files|new thread)"):
                worker.start()
            worker.close()
            assert not worker.is_running
