"""`pgsched worker --reload`: new code runs, broken code changes nothing or waits for a change, and Ctrl-C drains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.cli import run
from pgsched.worker.supervision import reloader
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

pytest.importorskip("watchfiles")
PROGRAM = """
import asyncio
from pgsched import App
app = App("shop")
@app.task(name="shop.t")
async def t(seconds: float = 0) -> str:
    await asyncio.sleep(seconds)
    return "{version}"
"""
Results = Callable[[], list[Any]]


class Developer:
    """A worker that reloads, its files, and what it has logged."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.file = folder / "shop.py"
        self.log = folder / "log.txt"
        self.write("one")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pgsched", "worker", "--reload", "--app", "shop", "--poll", "0.1"],
                cwd=folder, env=os.environ | {"PGSCHED_DSN": dsn, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=log,
            )  # fmt: skip

    def write(self, version: str) -> None:
        self.file.write_text(PROGRAM.format(version=version))

    def logged(self, text: str, count: int = 1) -> None:
        wait_until(lambda: self.log.read_text().count(text) >= count, 30, f"{text} in {self.log.read_text()}")


@pytest.fixture
def developer(tmp_path: Path, dsn: str) -> Iterator[Developer]:
    (tmp_path / "project").mkdir()
    started = Developer(tmp_path / "project", dsn)
    try:
        started.logged("started: ")
        yield started
    finally:
        started.process.kill()
        started.process.wait(30)


def result(db: psycopg.Connection[Any]) -> Any:
    """Run the task, and return its result."""
    row = db.execute("SELECT pgsched.enqueue('shop.t')").fetchone()
    assert row is not None

    def ended() -> Any:
        return db.execute("SELECT result FROM pgsched.runs WHERE id = %s AND state = 'succeeded'", row).fetchone()

    return wait_until(ended, 30, "the run")[0]


def test_new_code_runs_after_a_change(developer: Developer, db: psycopg.Connection[Any]) -> None:
    assert result(db) == "one"
    developer.write("two")
    developer.logged("reloading: shop.py changed")
    developer.logged("started: ", 2)
    assert result(db) == "two"
    assert db.execute("SELECT count(*) FROM pgsched.workers WHERE stopped_at IS NULL").fetchone() == (1,)
    developer.process.send_signal(signal.SIGINT)
    assert developer.process.wait(30) == 0
    assert db.execute("SELECT count(*) FROM pgsched.workers WHERE stopped_at IS NULL").fetchone() == (0,)


def test_code_that_cannot_be_compiled_changes_nothing(developer: Developer, db: psycopg.Connection[Any]) -> None:
    developer.file.write_text("def t(:\n")
    developer.logged("not reloaded: shop.py:1: ")
    assert result(db) == "one", "the old code goes on"
    developer.write("two")
    developer.logged("started: ", 2)
    assert result(db) == "two"


def test_a_broken_file_keeps_the_worker_while_other_files_change(
    developer: Developer, db: psycopg.Connection[Any]
) -> None:
    other = developer.file.with_name("other.py")
    developer.file.write_text(PROGRAM.format(version="two") + "return\n")
    developer.logged("not reloaded: shop.py:9: 'return' outside function")
    other.write_text("x = 1\n")
    developer.logged("not reloaded: shop.py:9: ", 2)
    assert result(db) == "one", "the old code goes on"
    developer.write("two")
    developer.logged("started: ", 2)
    assert result(db) == "two"


def test_a_second_edit_in_one_second_is_not_hidden_by_the_compiled_first(
    developer: Developer, db: psycopg.Connection[Any]
) -> None:
    first = developer.file.stat()
    assert list(developer.file.parent.glob("__pycache__/shop.*.pyc"))
    developer.write("two")
    os.utime(developer.file, ns=(first.st_atime_ns, first.st_mtime_ns))
    developer.logged("started: ", 2)
    assert result(db) == "two"


@pytest.mark.parametrize(
    "broken",
    [b"def t(:", b"return 1", b"break", b"x = 1\0", b"(" * 5000, b"-" * 100_000 + b"1"],
    ids=["syntax", "return", "break", "nul", "brackets", "deep"],
)
def test_what_python_cannot_compile_is_found_without_a_run(broken: bytes, tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    assert reloader.find_syntax_error(file, tmp_path) is None, "it is gone"
    file.write_bytes(broken)
    assert (reloader.find_syntax_error(file, tmp_path) or "").startswith("shop.py:")
    file.write_text("raise SystemExit\n")
    assert reloader.find_syntax_error(file, tmp_path) is None


def test_code_that_fails_when_imported_waits_for_the_next_change(
    developer: Developer, db: psycopg.Connection[Any]
) -> None:
    developer.file.write_text("\n\nno_such_name\n")
    developer.logged("shop.py:3: NameError")
    developer.logged("ended with exit code 2: waiting for a change")
    developer.write("two")
    developer.logged("started: ", 2)
    assert result(db) == "two"


def test_a_handler_that_takes_long_is_stopped_and_its_run_is_made_again(
    developer: Developer, db: psycopg.Connection[Any]
) -> None:
    db.execute("SELECT pgsched.enqueue('shop.t', '{\"seconds\": 60}')")
    wait_until(lambda: db.execute("SELECT 1 FROM pgsched.runs WHERE state = 'running'").fetchone(), 30, "the run")
    developer.write("two")
    developer.logged("started: ", 2)
    assert db.execute("SELECT attempt FROM pgsched.runs").fetchone() in [(0,), (1,)], "it costs no attempt"
    assert db.execute("SELECT count(*) FROM pgsched.attempts WHERE outcome = 'failed'").fetchone() == (0,)


def test_it_needs_watchfiles_and_one_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["worker", "--reload", "--processes", "2"]) == 2
    assert "not together with --processes" in capsys.readouterr().err
    monkeypatch.setattr(reloader.importlib.util, "find_spec", lambda name: None)
    assert run(["worker", "--reload"]) == 2
    assert "pip install 'pgsched[reload]'" in capsys.readouterr().err
