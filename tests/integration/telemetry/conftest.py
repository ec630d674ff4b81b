"""Real workers that are observed from outside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps import ledger
from tests.fleet import Fleet, fleet_on


@pytest.fixture
def fleet(dsn: str, tmp_path: Path) -> Iterator[Fleet]:
    """Workers on the test's database."""
    ledger.install(dsn)
    with fleet_on(dsn, tmp_path) as started:
        yield started
