"""`pgsched demo` says why its worker ended, and does not migrate a database that was given with --dsn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgsched.cli.commands import demo
from tests.support.cli.said import Said


@pytest.mark.long
def test_a_demo_whose_worker_died_says_why(
    dsn: str, pgsched: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSCHED_HOME", str(tmp_path))
    monkeypatch.setattr(demo, "COMMAND", ["worker", "--lease", "0"])
    said = pgsched("demo", "--seconds", "30")
    assert said.code == 1
    assert "the demo's worker ended with exit code 2: error: lease: 0 is out of range" in said.err
    assert "due slots succeeded" not in said.out


def test_a_demo_does_not_migrate_a_database_given_with_dsn(
    empty_dsn: str, pgsched: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSCHED_HOME", str(tmp_path))
    said = pgsched("demo", "--seconds", "1", "--dsn", empty_dsn)
    assert said.code == 5
    assert "the database has no pgsched schema: run `pgsched migrate`" in said.err
    with psycopg.connect(empty_dsn) as db:
        assert db.execute("SELECT to_regnamespace('pgsched') IS NULL").fetchone() == (True,)
