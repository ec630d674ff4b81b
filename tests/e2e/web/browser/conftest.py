"""A real browser, and a real console with a worker beside it. Skipped loudly where there is no chromium."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.waiting import wait_until
from tests.support.web.chromium import CHROMIUM, PATIENCE_MS, address, browser

HERE = str(Path(__file__).parent)
ABSENT = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here: apt install chromium (the console is NOT tested)"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.slow)
            item.add_marker(ABSENT)


@pytest.fixture
def console(dsn: str, tmp_path: Path) -> Iterator[str]:
    """The address of `pgsched web`, with a worker beside it that runs commands."""
    env = os.environ | {"PGSCHED_DSN": dsn, "PGSCHED_HOME": str(tmp_path / "home"), "PYTHONUNBUFFERED": "1"}
    said = tmp_path / "web.log"
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


@pytest.fixture
def chromium() -> Iterator[Any]:
    """A headless browser."""
    with browser() as begun:
        yield begun


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page whose scripts may not fail, and whose policy nothing may violate."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    opened, complaints = context.new_page(), []
    opened.set_default_timeout(PATIENCE_MS)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda said: complaints.append(said.text) if "Security Policy" in said.text else None)
    yield opened
    assert not complaints
    context.close()
