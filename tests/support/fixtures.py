"""Fixtures that several folders of tests share; the conftest.py of a folder imports those it needs.

Each fixture imports its modules inside the function, so that tests of pure functions start at once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pgsched import App
    from tests.support.cli.said import Said
    from tests.support.fleet import Fleet
    from tests.support.http.answering import Server


@pytest.fixture
def app(dsn: str) -> Iterator[App]:
    """Yield an app on the test's database."""
    from pgsched import App

    app = App("test", dsn=dsn)
    yield app
    app.close()


@pytest.fixture
def greet(app: App) -> Any:
    """Return a task of the app, registered as `t`."""

    @app.task(name="t")
    def greet(name: str) -> None: ...

    return greet


@pytest.fixture(autouse=True)
def no_full_hour(request: pytest.FixtureRequest) -> None:
    """Wait until no full hour is near, in modules that use `pass_time`: their jobs are due at full hours."""
    if hasattr(request.module, "pass_time"):
        from tests.support.db.passing import off_the_hour

        time.sleep(off_the_hour(time.time()))


@pytest.fixture
def fleet(dsn: str, tmp_path: Path) -> Iterator[Fleet]:
    """Yield a fleet of real worker processes on the test's database, in which the ledger's tables are installed."""
    from tests.support.apps import ledger
    from tests.support.fleet import fleet_on

    ledger.install(dsn)
    with fleet_on(dsn, tmp_path) as started:
        yield started


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a web server on loopback that answers "/" with "fine"."""
    from tests.support.http.answering import answer, serving

    with serving() as started:
        started.answers["/"] = answer(body="fine")
        yield started


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide settings of the caller's environment from the tests, except those that begin with PGSCHED_TEST_."""
    from pgsched.config import LIBPQ

    for name in [*os.environ]:
        ours = name.startswith("PGSCHED_") and not name.startswith("PGSCHED_TEST_")
        if ours or name in ("DATABASE_URL", "PGDATA", *LIBPQ):
            monkeypatch.delenv(name)


@pytest.fixture
def pgsched(dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Return a function that runs a command line in this process, on the test's database."""
    from pgsched.cli import run
    from pgsched.services import doctor
    from tests.support.cli.said import Said

    monkeypatch.setenv("PGSCHED_DSN", dsn)
    monkeypatch.setattr(doctor, "TREND_S", 0.1)  # the pause in which dead rows may pile up: none do here

    def call(*args: str) -> Said:
        capsys.readouterr()  # drop what the test itself has printed
        code = run([*args])
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return call


@pytest.fixture
def process() -> Callable[..., Said]:
    """Return a function that runs a command line in a new process."""
    from tests.support.cli.said import Said
    from tests.support.paths import ROOT

    def call(*args: str, stdin: str | None = None, **env: str) -> Said:
        done = subprocess.run(
            [sys.executable, "-m", "pgsched", *args],
            cwd=ROOT, env=os.environ | env, input=stdin, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return Said(done.returncode, done.stdout, done.stderr)

    return call
