"""Fixtures: rounds of backfills that a busy machine does not cut short, and a job to backfill."""

from typing import Any

import psycopg
import pytest

from pgsched.db.queries.jobs import jobs
from pgsched.leader import backfill


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "LONGEST_S", 30.0)


@pytest.fixture
def job(db: psycopg.Connection) -> dict[str, Any]:
    return jobs.add(db, {"name": "a", "task": "t", "schedule": "0 0 * * *", "max_attempts": 2})
