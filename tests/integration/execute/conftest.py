"""Fixtures: real workers that allow every kind, a web server, and a mark to find the processes they start."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.fleet import Fleet, fleet_on
from tests.support.http.answering import serving
from tests.support.matrix import Table


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a mark that is in the environment of every worker and of the processes it starts."""
    text = uuid.uuid4().hex
    monkeypatch.setenv("MATRIX_MARK", text)
    return text


@pytest.fixture
def fleet(dsn: str, tmp_path: Path, mark: str) -> Iterator[Fleet]:
    with fleet_on(dsn, tmp_path) as started:
        yield started


@pytest.fixture
def table(tmp_path: Path, db: psycopg.Connection) -> Iterator[Table]:
    db.execute("CREATE TABLE public.seen (text text); CREATE TABLE public.gates (name text)")
    with serving() as server:
        yield Table(tmp_path, server)
