"""Fixtures of the unit tests, which fail a test that needs PostgreSQL or starts a process.

Invariant: a unit test needs no PostgreSQL and starts no process. Tests that do belong to tests/integration.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import croniter  # noqa: F401  before any test: its import starts `file`, to check if Python is a 32-bit build
import pytest

from tests.support.fixtures import server

__all__ = ["server"]

STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"})
_watched = False
_started: list[str] = []


def _hear(event: str, _: Any) -> None:
    if _watched and event in STARTS:
        _started.append(event)


sys.addaudithook(_hear)


@pytest.fixture(autouse=True)
def no_processes() -> Iterator[None]:
    """Fail a test that starts a process."""
    global _watched  # noqa: PLW0603
    _started.clear()
    _watched = True
    yield
    _watched = False
    assert _started == [], "this test starts processes: move it to tests/integration"


@pytest.fixture(scope="session")
def server_dsn() -> str:
    """Fail a test that asks for a PostgreSQL server."""
    pytest.fail("this test needs PostgreSQL: move it to tests/integration")
