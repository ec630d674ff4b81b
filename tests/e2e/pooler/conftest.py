"""Fixtures of the pooler tests: a database behind PgBouncer, and real workers that reach it only through PgBouncer."""

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
    """A function that starts a PgBouncer in front of the test's database. Its keywords are settings of PgBouncer."""
    if BINARY is None:
        pytest.skip("PgBouncer is not installed (apt-get install pgbouncer): poolers are not tested")
    monkeypatch.setattr(routes, "known", {})
    with contextlib.ExitStack() as started:
        yield lambda **settings: started.enter_context(bouncing(dsn, **settings))


@pytest.fixture
def bouncer(pooled: Callable[..., Bouncer]) -> Bouncer:
    """A PgBouncer in transaction mode."""
    return pooled()


@pytest.fixture
def fleet_through(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Bouncer], Fleet]]:
    """A function that makes a fleet behind a PgBouncer. What handlers write into the ledger bypasses PgBouncer."""
    ledger.install(dsn)
    monkeypatch.setenv("LEDGER_DSN", dsn)
    with contextlib.ExitStack() as started:
        yield lambda bouncer: started.enter_context(fleet_on(bouncer.dsn, tmp_path))


@pytest.fixture
def fleet(bouncer: Bouncer, fleet_through: Callable[[Bouncer], Fleet]) -> Fleet:
    return fleet_through(bouncer)


@pytest.fixture
def foreign(bouncer: Bouncer) -> Iterator[psycopg.Connection[Any]]:
    """A connection of another client that shares the pool."""
    with psycopg.connect(bouncer.dsn, autocommit=True, prepare_threshold=None, application_name="foreign") as conn:
        yield conn
