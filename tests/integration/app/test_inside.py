"""A worker inside a program: on its event loop or in a thread, its log, its errors at the start, several of them."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgsched import App, DatabaseUnreachable, InputError, PgschedError
from pgsched.app.base import import_app
from pgsched.errors import SchemaTooOld, WrongFleet
from tests.support.hosting.inside import QUICK, alive, becomes, play, states
from tests.support.waiting import wait_until


def test_a_run_without_a_timeout_has_that_of_its_worker(app: App, db: psycopg.Connection[Any]) -> None:
    @app.task(name="stuck", max_attempts=1)
    async def stuck() -> None:
        await asyncio.sleep(60)

    async def scene() -> None:
        async with app.worker(**QUICK, default_timeout=0.2):
            await stuck.enqueue_async()
            await becomes(lambda: states(db) == {"stuck": "dead"})

    play(scene)
    assert db.execute("SELECT error FROM pgsched.runs").fetchone() == ("timed out after 0.2 s",)


def test_async_handlers_run_on_the_program_s_loop_and_plain_ones_in_threads(
    app: App, db: psycopg.Connection[Any]
) -> None:
    found: dict[str, Any] = {}

    @app.task(name="on_loop")
    async def on_loop() -> None:
        found["loop"] = asyncio.get_running_loop()

    @app.task(name="in_thread")
    def in_thread() -> None:
        found["thread"] = threading.current_thread()

    async def scene() -> None:
        async with app.worker(**QUICK) as worker:
            assert worker.is_running and worker.name
            await on_loop.enqueue_async()
            await in_thread.enqueue_async()
            await becomes(lambda: set(states(db).values()) == {"succeeded"})
            assert found["loop"] is asyncio.get_running_loop()
            assert found["thread"] is not threading.current_thread()
        assert not worker.is_running and worker.error is None
        await app.close_async()

    play(scene)
    assert alive(db) == 0, "it has signed off"


def test_the_thread_form_has_a_loop_of_its_own(app: App, db: psycopg.Connection[Any]) -> None:
    @app.task(name="t")
    async def t() -> str:
        return threading.current_thread().name

    with app.worker(**QUICK):
        t.enqueue()
        wait_until(lambda: states(db) == {"t": "succeeded"}, 20)
    assert db.execute("SELECT result FROM pgsched.runs").fetchone() == ("pgsched-worker",)
    assert alive(db) == 0


@pytest.mark.long
def test_the_process_is_left_as_it_was(app: App) -> None:
    def facts() -> tuple[object, ...]:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
        root = logging.getLogger()
        return (*handlers, gc.get_threshold(), gc.get_freeze_count(), dict(os.environ), root.level, [*root.handlers],
                logging.getLogRecordFactory(), logging.lastResort)  # fmt: skip

    async def scene() -> None:
        before = facts()  # asyncio.run handles SIGINT
        async with app.worker(**QUICK):
            assert facts() == before
        assert facts() == before

    before = facts()
    with app.worker(**QUICK):
        assert facts() == before
    play(scene)
    assert facts() == before


def test_its_log_goes_where_the_program_s_log_goes(
    app: App, greet: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "pgsched"), app.worker(**QUICK):
        pass
    said = [record.getMessage() for record in caplog.records if record.name == "pgsched.worker"]
    assert any(line.startswith("started: app test with t;") for line in said), said
    assert capsys.readouterr() == ("", "")


def test_two_workers_at_once_in_one_process(dsn: str, db: psycopg.Connection[Any]) -> None:
    apps, hooks = [App("one", dsn=dsn), App("two", dsn=dsn)], []

    def register(app: App) -> None:
        @app.task(name=app.name)
        async def t() -> None: ...

        app.on_start(lambda: hooks.append(f"start {app.name}"))
        app.on_shutdown(lambda: hooks.append(f"end {app.name}"))
        t.enqueue()

    async def scene() -> None:
        async with apps[0].worker(**QUICK), apps[1].worker(**QUICK) as second, apps[1].worker(**QUICK) as third:
            assert second.name != third.name
            await becomes(lambda: states(db) == {"one": "succeeded", "two": "succeeded"})
            assert alive(db) == 3

    for app in apps:
        register(app)
    play(scene)
    assert alive(db) == 0
    assert hooks == ["start one", "start two", "end two", "end one"], "hooks are called once in a process"


@pytest.mark.long
def test_the_database_goes_away_and_comes_back(app: App, db: psycopg.Connection[Any]) -> None:
    @app.task(name="t")
    async def t() -> None: ...

    async def scene() -> None:
        async with app.worker(**QUICK) as worker:
            for _ in range(2):
                db.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
                db.execute("SELECT pgsched.enqueue('t')")
                await becomes(lambda: set(states(db).values()) == {"succeeded"})
            assert worker.is_running and worker.error is None

    play(scene)


@pytest.mark.parametrize("form", ["async", "thread"])
def test_what_is_wrong_is_raised_when_it_starts(form: str, dsn: str, empty_dsn: str, monkeypatch: Any) -> None:
    def begin(address: str) -> None:
        worker = App("test", dsn=address).worker(**QUICK)
        if form == "thread":
            worker.start()
        else:
            play(worker.__aenter__)

    with pytest.raises(DatabaseUnreachable):
        begin(make_conninfo(dsn, host="127.0.0.1", port="1"))
    with pytest.raises(SchemaTooOld):
        begin(empty_dsn)
    monkeypatch.setenv("PGSCHED_FLEET", "11111111-1111-1111-1111-111111111111")
    with pytest.raises(WrongFleet):
        begin(dsn)


@pytest.mark.parametrize("error", [ValueError("no licence"), SystemExit("no licence")], ids=["error", "exit"])
def test_a_hook_that_fails_is_raised_when_it_starts(
    error: BaseException, app: App, db: psycopg.Connection[Any]
) -> None:
    @app.on_start
    def broken() -> None:
        raise error

    with pytest.raises(PgschedError, match="no licence"):
        app.worker(**QUICK).start()
    with pytest.raises(PgschedError, match="no licence"):
        play(app.worker(**QUICK).__aenter__)
    assert alive(db) == 0


def test_a_worker_starts_once_and_not_by_with_on_an_event_loop(app: App) -> None:
    async def scene() -> None:
        with pytest.raises(InputError, match="use async with"):
            app.worker(**QUICK).start()

    play(scene)
    with app.worker(**QUICK) as worker, pytest.raises(PgschedError, match="started before"):
        worker.start()


@pytest.mark.parametrize(
    ("kind", "why"), [("shell", "runs no programs"), ("command", "runs no programs"), ("htp", "did you mean http")]
)
def test_kinds_that_it_may_not_run_are_refused(kind: str, why: str, app: App) -> None:
    with pytest.raises(InputError, match=why):
        app.worker(allow=["task", kind])


def test_one_worker_s_end_leaves_another_worker_s_capture(app: App, db: psycopg.Connection[Any]) -> None:
    @app.task(name="prints", capture=True)
    def prints() -> None:
        print("hello")

    def captured(count: int) -> bool:
        return db.execute("SELECT count(*) FROM pgsched.run_logs WHERE chunk = E'hello\\n'").fetchone() == (count,)

    before = (sys.stdout, [*logging.getLogger().handlers])
    with app.worker(**QUICK | {"queues": ["default"]}):
        with app.worker(**QUICK | {"queues": ["other"]}):
            prints.options(queue="other").enqueue()
            wait_until(lambda: captured(1), 20)
            prints.enqueue()
            wait_until(lambda: captured(2), 20)
        prints.enqueue()
        wait_until(lambda: captured(3), 20)
    assert (sys.stdout, [*logging.getLogger().handlers]) == before


@pytest.mark.long
def test_handlers_in_child_processes_work_and_the_children_end(
    db: psycopg.Connection[Any], dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = import_app("tests.support.apps.processes:app")
    monkeypatch.setattr(app, "dsn", dsn)
    with app.worker(**QUICK):
        first, second = (app.tasks["pid"].enqueue() for _ in range(2))
        wait_until(lambda: states(db) == {"pid": "succeeded"}, 30)
    pids = {row[0] for row in db.execute("SELECT result FROM pgsched.runs WHERE id IN (%s, %s)", [first, second])}
    assert os.getpid() not in pids
    wait_until(lambda: not any(is_alive(pid) for pid in pids), 10, "the end of the child processes")
    app.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
