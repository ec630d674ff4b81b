"""Fixtures of the browser tests: a real browser, and a real console with a worker.

Without chromium the tests are skipped, with a message. The tests of a module share the browser, the console, the worker
and the database, because to start them takes longer than most tests. A module whose tests write different rows empties
the tables before each test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.paths import ROOT
from tests.support.waiting import wait_until
from tests.support.web.chromium import CHROMIUM, PATIENCE_MS, address, browser

if TYPE_CHECKING:
    from tests.support.databases import Databases

HERE = str(Path(__file__).parent)
ABSENT = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here: apt install chromium (the console is NOT tested)"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(ABSENT)


@pytest.fixture(scope="module")
def dsn(databases: Databases) -> Iterator[str]:
    """The DSN of a fresh, migrated database."""
    with databases.one() as fresh:
        yield fresh


@pytest.fixture(scope="module")
def console(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `pgsched web`, with a worker beside it that runs commands."""
    folder = tmp_path_factory.mktemp("console")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PGSCHED_")}
    env |= {"PGSCHED_DSN": dsn, "PGSCHED_HOME": str(folder / "home"), "PYTHONUNBUFFERED": "1"}
    said = folder / "web.log"
    with said.open("w") as log:
        commands = (["web", "--no-auth", "--port", "0"], ["worker", "--allow", "shell", "--poll", "0.2"])
        running = [
            subprocess.Popen([sys.executable, "-m", "pgsched", *command], cwd=ROOT, env=env, stderr=log if n == 0 else
                             subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            for n, command in enumerate(commands)
        ]  # fmt: skip
        try:
            yield wait_until(lambda: address(said), 60, "the console's address")
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(30)
    assert "Traceback" not in said.read_text()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless browser."""
    with browser() as begun:
        yield begun


@contextmanager
def watched(chromium: Any) -> Iterator[tuple[Any, list[str]]]:
    """Yield a page and the list of its complaints: script errors and violations of its content security policy."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    opened, complaints = context.new_page(), list[str]()
    opened.set_default_timeout(PATIENCE_MS)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda said: complaints.append(said.text) if "Security Policy" in said.text else None)
    try:
        yield opened, complaints
    finally:
        context.close()


@pytest.fixture(scope="module")
def tab(console: str, chromium: Any) -> Iterator[tuple[Any, list[str]]]:
    """A page that the tests of a module share, and its complaints. It is closed before the console ends."""
    with watched(chromium) as made:
        yield made


@pytest.fixture
def own_page(console: str, chromium: Any) -> Iterator[Any]:
    """A page of this test's own, for a script that the shared page must not have."""
    with watched(chromium) as (opened, complaints):
        yield opened
        assert not complaints


@pytest.fixture
def page(tab: tuple[Any, list[str]]) -> Iterator[Any]:
    """The shared page. A script error or a violation of its content security policy fails the test."""
    opened, complaints = tab
    complaints.clear()
    opened.mouse.move(0, 0)
    yield opened
    opened.unroute_all()
    for other in opened.context.pages:
        if other != opened:
            other.close()  # pages that a failed test left open would use up streams of the next test
    assert not complaints
