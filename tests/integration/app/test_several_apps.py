"""One worker process that serves several apps, and apps whose names collide."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.config import Settings
from pgsched.errors import MemoryReached
from pgsched.worker.process import make_workers
from pgsched.worker.together import report_as_one, run_all
from tests.support.hosting.inside import alive, becomes, play
from tests.support.paths import ROOT
from tests.support.waiting import wait_until
from tests.support.working import settings

PROGRAM = """
from pgsched import App
app = App({name!r})
@app.job(schedule="@daily", name="{name}.job")
@app.task(name="{name}.t")
async def t() -> None: ...
@app.on_start
def start() -> None: print("{name} started")
@app.on_shutdown
def shutdown() -> None: print("{name} shut down")
"""
DONE = "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded'"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.py").write_text(PROGRAM.format(name=name))
    return tmp_path


@pytest.fixture
def worker(folder: Path, dsn: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "pgsched", "worker", "--app", "one", "--app", "two", "--poll", "0.1"],
        cwd=folder, env=os.environ | {"PGSCHED_DSN": dsn, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def enqueue(db: psycopg.Connection[Any]) -> None:
    db.execute("SELECT pgsched.enqueue(name) FROM unnest('{one.t,two.t}'::text[]) AS name")


def test_a_worker_runs_the_tasks_and_declares_the_jobs_of_each_app(
    worker: subprocess.Popen[str], db: psycopg.Connection[Any]
) -> None:
    enqueue(db)
    wait_until(lambda: db.execute(DONE.encode()).fetchone() == (2,), 30, "the runs of both apps")
    rows = db.execute("SELECT app, tasks, declares FROM pgsched.workers WHERE stopped_at IS NULL ORDER BY app")
    assert rows.fetchall() == [("one", ["one.t"], ["one.job"]), ("two", ["two.t"], ["two.job"])]
    assert db.execute("SELECT name, declared_by FROM pgsched.jobs ORDER BY name").fetchall() == [
        ("one.job", "one"), ("two.job", "two")
    ]  # fmt: skip
    worker.send_signal(signal.SIGTERM)
    out, _ = worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert out.split("\n")[:-1] == ["one started", "two started", "two shut down", "one shut down"]
    assert db.execute("SELECT count(*) FROM pgsched.workers WHERE stopped_at IS NULL").fetchone() == (0,)


@pytest.mark.long
def test_when_one_of_its_workers_is_to_drain_the_process_ends(
    worker: subprocess.Popen[str], db: psycopg.Connection[Any]
) -> None:
    wait_until(lambda: db.execute("SELECT count(*) FROM pgsched.workers").fetchone() == (2,), 30, "the workers")
    db.execute("UPDATE pgsched.workers SET drain_asked_at = now(), drain_asked_by = 'me' WHERE app = 'two'")
    assert worker.wait(40) == 0
    assert db.execute("SELECT count(*) FROM pgsched.workers WHERE stopped_at IS NULL").fetchone() == (0,)


@pytest.mark.parametrize("pings", [True, False])
def test_the_workers_of_all_apps_may_ping_where_the_first_one_may_send_requests(pings: bool) -> None:
    given = settings(http_allow=("10.0.0.1",), pings=pings)
    first, second = make_workers(Settings("host=nowhere", given), [App("one"), App("two")], None)
    assert first.settings.http_allow == ("10.0.0.1",)
    assert second.settings.http_allow == (("10.0.0.1",) if pings else ())


@pytest.mark.parametrize(("why", "word"), [("runs", "spent"), ("drain", "drained"), ("memory", "swollen")])
def test_all_workers_of_a_process_leave_once_one_takes_no_more_runs(
    why: str, word: str, dsn: str, db: psycopg.Connection[Any]
) -> None:
    """The supervisor hears of it at once, and only once; a handler that takes long gets all of its time."""
    apps, words = [App("one", dsn=dsn), App("two", dsn=dsn)], list[str]()

    async def scene() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        @apps[1].task(name="two.t")
        async def waits() -> None:
            begun.set()
            await go.wait()

        workers = make_workers(Settings(dsn, settings(max_runs=1 if why == "runs" else None)), apps, None)
        report_as_one([worker.ending for worker in workers], words.append)
        await asyncio.to_thread(waits.enqueue)
        running = asyncio.create_task(run_all(workers))
        await begun.wait()
        if why == "drain":
            workers[1].ending.retire("cli:ada asked it to drain")
        elif why == "memory":
            workers[0].ending.retire("swollen", MemoryReached("too large"))
        async with asyncio.timeout(20):
            await asyncio.gather(*(worker.ending.draining.wait() for worker in workers))
        assert words == ["ready", word]
        await becomes(lambda: alive(db) == 1, "the end of the worker without a run")
        assert not running.done()
        go.set()
        with pytest.raises(MemoryReached) if why == "memory" else contextlib.nullcontext():
            await asyncio.wait_for(running, 30)

    play(scene)
    assert len(words) == 2
    assert db.execute("SELECT state::text FROM pgsched.runs").fetchall() == [("succeeded",)]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("more", "apps", "error"),
    [
        ("", "one one", "one and one are the same app"),
        ("app = App('one')", "one three", "one and three are apps of the same name, 'one'"),
        ("@app.task(name='one.t')\ndef t() -> None: ...", "one three",
         "task one.t is in one (one.py:4) and in three (three.py:11): give one of them another name"),
        ("@app.job(schedule='@daily', name='one.job')\n@app.task\ndef u() -> None: ...", "one three",
         "job one.job is declared in one and three"),
        ("", "one missing", "there is no module 'missing'"),
    ],
    ids=["twice", "name", "task", "job", "missing"],
)  # fmt: skip
def test_apps_that_cannot_be_served_together_are_refused(
    more: str, apps: str, error: str, folder: Path, process: Any, dsn: str
) -> None:
    with (folder / "three.py").open("a") as file:
        file.write(more)
    said = process("worker", PGSCHED_APP=apps, PGSCHED_DSN=dsn, PYTHONPATH=str(folder))
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert error in said.err, said.err
