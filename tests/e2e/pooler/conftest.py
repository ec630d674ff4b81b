"""A database behind a PgBouncer, and real workers that reach it only through that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.db.connection import routes
from tests.support.apps import ledger
from tests.support.bouncer import BINARY, Bouncer, bouncing
from tests.support.fleet import Fleet, fleet_on

Bouncing = Callable[..., AbstractContextManager[Bouncer]]


@pytest.fixture
def pooled(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bouncer]]:
    """Starts a PgBouncer in front of the test's database; the keywords are its settings."""
    if BINARY is None:
        pytest.skip("PgBouncer is not installed (apt-get install pgbouncer): poolers are not tested")
    monkeypatch.setattr(routes, "known", {})
    with contextlib.ExitStack() as started:
        yield lambda **settings: started.enter_context(bouncing(dsn, **settings))


@pytest.fixture
def bouncer(pooled: Callable[..., Bouncer]) -> Bouncer:
    """One in transaction mode."""
    return pooled()


@pytest.fixture
def fleet_through(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Bouncer], Fleet]]:
    """Worker processes behind a PgBouncer; what their handlers note goes round it."""
    ledger.install(dsn)
    monkeypatch.setenv("LEDGER_DSN", dsn)
    with contextlib.ExitStack() as started:
        yield lambda bouncer: started.enter_context(fleet_on(bouncer.dsn, tmp_path))


@pytest.fixture
def fleet(bouncer: Bouncer, fleet_through: Callable[[Bouncer], Fleet]) -> Fleet:
    return fleet_through(bouncer)


@pytest.fixture
def foreign(bouncer: Bouncer) -> Iterator[psycopg.Connection[Any]]:
    """Somebody else's connection, who shares the pool."""
    with psycopg.connect(bouncer.dsn, autocommit=True, prepare_threshold=None, application_name="foreign") as conn:
        yield conn
