"""JSON that PostgreSQL stores and Python cannot read fails its own run, and neither the worker nor its other claims."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.core.model import Result, Unreadable
from pgsched.db.queries.runs import claim_rows
from pgsched.errors import InputError, PgschedError
from pgsched.execute.base import Executor
from pgsched.execute.http.request import read_request
from pgsched.execute.python.executor import PythonExecutor
from pgsched.execute.sql import SqlExecutor
from pgsched.execute.subprocess.command import CommandExecutor
from pgsched.execute.subprocess.program import Processes
from pgsched.execute.subprocess.shell import ShellExecutor
from pgsched.worker.worker import Worker
from tests.support.db.setting import add_runs
from tests.support.executing import claim, execute
from tests.support.workers import SETTINGS, becomes, play, registration

# Python 3.13 reads 10,000 levels; PostgreSQL stores 12,000
TOO_LONG, TOO_DEEP = '{"a": 1e5000}', "[" * 11_000 + "]" * 11_000


def app_of(dsn: str) -> App:
    app = App("test", dsn=dsn)

    @app.task(name="t")
    def t() -> None: ...

    return app


def add_unread(db: psycopg.Connection, args: str) -> None:
    """Add a run whose arguments were stored before there was a bound on them."""
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("INSERT INTO pgsched.runs (task, args) VALUES ('t', %s)", [args])


@pytest.mark.parametrize("bad", [TOO_LONG, TOO_DEEP], ids=["digits", "levels"])
def test_a_run_that_python_cannot_read_is_dead_and_the_others_are_run(
    bad: str, dsn: str, db: psycopg.Connection
) -> None:
    add_runs(db, 1)
    add_unread(db, bad)
    add_runs(db, 1)

    async def scene() -> None:
        worker = Worker(dsn, SETTINGS, {"task": PythonExecutor(app_of(dsn).tasks, 2)}, registration())
        work = asyncio.create_task(worker.run())
        await becomes(lambda: sum(worker.verdicts.values()) == 3 or work.done(), "three settlements")
        worker.stop()
        await work
        assert worker.verdicts == {"succeeded": 2, "dead": 1}

    play(scene)
    ((outcome, error),) = db.execute("SELECT outcome, error FROM pgsched.attempts WHERE run_id = 2").fetchall()
    assert outcome == "failed" and error.startswith("args: Python cannot read this JSON: ")


@pytest.mark.parametrize("bad", [TOO_LONG, TOO_DEEP], ids=["digits", "levels"])
def test_if_reading_raised_an_unreadable_run_would_end_the_worker(
    bad: str, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_rows, "read_one", json.loads)
    add_unread(db, bad)

    async def scene() -> None:
        worker = Worker(dsn, SETTINGS, {"task": PythonExecutor(app_of(dsn).tasks, 2)}, registration())
        with pytest.raises((PgschedError, ValueError, RecursionError)):
            await worker.run()

    play(scene)


@pytest.mark.parametrize("text", ['{"a": 1' + "0" * 5000 + "}", TOO_DEEP], ids=["digits", "levels"])
def test_reading_a_column_raises_nothing(text: str) -> None:
    (first, second, bad, none), size = claim_rows.decode_column(["{}", '{"a": [1]}', text, None])
    assert size == len('{}{"a": [1]}null') + len(text)
    assert (first, second, none) == ({}, {"a": [1]}, None)
    assert isinstance(bad, Unreadable)
    assert isinstance(claim_rows.decode_column([text])[0][0], Unreadable)


@pytest.mark.parametrize("at_once", [0, 1_000_000])
def test_a_column_is_read_in_order(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_rows, "MOST_AT_ONCE", at_once)
    assert claim_rows.decode_column(["{}", '"x, y"', "[1, [2]]", "null"]) == ([{}, "x, y", [1, [2]], None], 20)
    assert claim_rows.decode_column([None, "3", None]) == ([None, 3, None], 9)
    assert claim_rows.decode_column([]) == ([], 0)


@pytest.mark.parametrize("kind", ["task", "command", "shell", "sql"])
def test_every_executor_refuses_unreadable_arguments_for_good(kind: str, dsn: str) -> None:
    made: dict[str, Executor] = {
        "task": PythonExecutor(app_of(dsn).tasks, 1),
        "command": CommandExecutor(Processes()),
        "shell": ShellExecutor(Processes()),
        "sql": SqlExecutor(dsn),
    }
    outcome = execute(made[kind], claim(kind, "t", Unreadable("it is odd"), owner="o"))
    assert (outcome.result, outcome.retry, outcome.error) == (Result.FAILED, False, "args: it is odd")


def test_an_http_request_with_unreadable_arguments_is_refused() -> None:
    with pytest.raises(InputError, match=r"^args: it is odd$"):
        read_request(claim("http", "https://example.org/", Unreadable("it is odd")))


def test_unreadable_options_are_refused_before_the_program_starts() -> None:
    given: Any = claim("command", "true", [], options=Unreadable("it is odd"))
    outcome = execute(CommandExecutor(Processes()), given)
    assert (outcome.retry, outcome.error) == (False, "options: it is odd")
