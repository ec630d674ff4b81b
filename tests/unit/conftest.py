"""What the unit tests share, and what makes them unit tests.

Invariant: a unit test needs no PostgreSQL and starts no process; one that does fails, and belongs to tests/integration.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import croniter  # noqa: F401  before any test: its import starts `file`, to see whether this Python has 32 bits
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
    """Fails the test that starts one."""
    global _watched  # noqa: PLW0603
    _started.clear()
    _watched = True
    yield
    _watched = False
    assert _started == [], "this test starts processes: move it to tests/integration"


@pytest.fixture(scope="session")
def server_dsn() -> str:
    """There is none."""
    pytest.fail("this test needs PostgreSQL: move it to tests/integration")
