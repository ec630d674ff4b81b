"""Rounds of backfills that a busy machine does not cut short."""

import pytest

from pgsched.leader import backfill


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "LONGEST_S", 30.0)
