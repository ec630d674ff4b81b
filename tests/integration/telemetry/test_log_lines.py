"""The log lines by which an operator follows a worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

APP = "tests.support.apps.talkative:app"


def lines(fleet: Fleet, event: str) -> list[dict[str, Any]]:
    """Return the worker's JSON lines of an event, once there is one."""

    def found() -> list[dict[str, Any]]:
        said = [line for line in fleet.members[0].log.read_text().splitlines() if line.startswith("{")]
        return [line for line in map(json.loads, said) if line["event"] == event]

    return wait_until(found, 30, event)


@pytest.fixture
def worker(fleet: Fleet) -> Iterator[Fleet]:
    fleet.start(1, "--app", APP, "--json", "--queue", "mail", "--queue", "default")
    yield fleet


@pytest.mark.long
def test_the_first_line_names_app_queues_tasks_and_database(worker: Fleet, db: psycopg.Connection[Any]) -> None:
    (line,) = lines(worker, "started")
    assert (line["app"], line["queues"], line["kinds"]) == ("talkative", "mail, default", "task")
    assert line["tasks"] == "talkative.boom, talkative.prints, talkative.waits"
    assert line["database"].startswith(f"{db.info.dbname} on ")


@pytest.mark.long
def test_failures_are_warnings_and_dead_runs_errors(worker: Fleet, db: psycopg.Connection[Any]) -> None:
    db.execute("SELECT pgsched.enqueue('talkative.boom', max_attempts => 1)")
    (failed,) = lines(worker, "attempt ended")
    (dead,) = lines(worker, "run is dead")
    assert (failed["level"], failed["outcome"]) == ("warning", "failed")
    assert (dead["level"], dead["state"], dead["task"]) == ("error", "dead", "talkative.boom")
    assert dead["more"] == f"pgsched run show {dead['run']}" and "boom" in dead["error"]


@pytest.mark.long
def test_a_drain_logs_the_running_attempts_and_how_to_stop_at_once(worker: Fleet, db: psycopg.Connection[Any]) -> None:
    db.execute("SELECT pgsched.enqueue('talkative.waits')")
    wait_until(lambda: db.execute("SELECT FROM pgsched.runs WHERE state = 'running'").fetchone() is not None, 20)
    (member,) = worker.members
    wait_until(lambda: member.logged("it began"), 20, "the handler")
    os.kill(member.pid, signal.SIGTERM)
    (draining,) = lines(worker, "draining")
    assert draining["runs"].startswith("talkative.waits (run ") and "second Ctrl-C" in draining["hint"]
    assert lines(worker, "still running")[0]["runs"] == draining["runs"]
    os.kill(member.pid, signal.SIGTERM)
    assert member.process.wait(20) == 0


@pytest.mark.long
def test_output_of_a_handler_appears_at_once(worker: Fleet, db: psycopg.Connection[Any]) -> None:
    db.execute("SELECT pgsched.enqueue('talkative.prints')")
    wait_until(lambda: worker.members[0].logged("seen at once"), 10, "what it prints, while it still runs")
    os.kill(worker.members[0].pid, signal.SIGKILL)


def test_a_worker_without_an_app_logs_a_warning(dsn: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "pgsched", "worker"],
        env=os.environ | {"PGSCHED_DSN": dsn}, stderr=subprocess.PIPE, text=True,
    ) as worker:  # fmt: skip
        assert worker.stderr is not None
        said = worker.stderr.readline()
        assert "no --app: this worker runs no task of Python code: nothing at all" in said and "--allow" in said
        worker.terminate()


@pytest.mark.long
@pytest.mark.parametrize("same", [True, False], ids=["another way to it", "another database"])
def test_a_worker_serves_the_database_of_its_app_or_refuses(
    same: bool, dsn: str, empty_dsn: str, process: Any, tmp_path: Any
) -> None:
    theirs = make_conninfo(dsn if same else empty_dsn, application_name="theirs")
    (tmp_path / "owned.py").write_text(
        f"from pgsched import App\napp = App('owned', dsn={theirs!r})\n@app.task(name='one')\ndef one(): ...\n"
    )
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("SELECT pgsched.enqueue('one')")
    words = ("worker", "--app", "owned:app", "--max-runs", "1")
    said = process(*words, PYTHONPATH=str(tmp_path), PGSCHED_DSN=dsn)
    if same:
        assert said.code == 0
        with psycopg.connect(dsn, autocommit=True) as db:
            db.execute("SELECT pgsched.enqueue('one')")
        assert process(*words, PYTHONPATH=str(tmp_path)).code == 0, "without a DSN of its own it takes the app's"
    else:
        assert said.code == 2 and "the app is made for" in said.err


@pytest.mark.long
def test_each_end_of_a_run_is_a_line_unless_the_worker_is_quiet(
    fleet: Fleet, db: psycopg.Connection[Any], process: Any, tmp_path: Any, dsn: str
) -> None:
    (tmp_path / "greeter.py").write_text(
        "from pgsched import App\napp = App('greeter')\n@app.task(name='greet')\nasync def greet(): ...\n"
    )
    words = ("worker", "--app", "greeter:app", "--max-runs", "1")
    for more, shown in (((), True), (("--quiet",), False)):
        db.execute("SELECT pgsched.enqueue('greet')")
        said = process(*words, *more, PYTHONPATH=str(tmp_path), PGSCHED_DSN=dsn)
        assert said.code == 0
        assert (" greet succeeded in " in said.err) is shown, said.err
        assert shown or said.err == ""
