"""A migration that is killed anywhere is done again from there."""

from __future__ import annotations

import subprocess
import sys

import psycopg

from pgsched.db.schema import migrate
from pgsched.db.schema.version import VERSIONS
from tests.support.paths import ROOT
from tests.support.schema.catalog import catalog
from tests.support.schema.probing import fill


def killed_at(dsn: str, line: str) -> bool:
    """Start a migration and kill it when it says this; False if it ended before."""
    command = [sys.executable, "-m", "pgsched", "migrate", "--dsn", dsn]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for said in process.stderr:
        if said.startswith(line):
            process.kill()
    process.wait(timeout=60)
    return process.returncode == -9


def test_a_migration_that_is_killed_is_done_again_from_there(empty_dsn: str, dsn: str) -> None:
    migrate.upgrade(empty_dsn, to="0001")
    fill(empty_dsn, 5_000)
    told: list[str] = []
    for version in VERSIONS[1:]:
        told += [step.name for step in migrate.steps(version)] + [f"{version}: tables"]
    assert len(told) > 10
    assert sum(killed_at(empty_dsn, line) for line in told) > len(told) // 2
    migrate.upgrade(empty_dsn)
    assert catalog(empty_dsn) == catalog(dsn)
    with psycopg.connect(empty_dsn) as db:
        assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (5_000,)
        assert db.execute("SELECT count(*) FROM pgsched.kept_keys").fetchone() == (50,)


def test_an_index_of_which_the_build_was_cut_off_is_built_anew(empty_dsn: str, dsn: str) -> None:
    migrate.upgrade(empty_dsn, to="0002")
    with psycopg.connect(empty_dsn, autocommit=True) as db:
        db.execute("CREATE INDEX runs_of_key ON pgsched.runs (id)")
        db.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'pgsched.runs_of_key'::regclass")
    migrate.upgrade(empty_dsn)
    assert catalog(empty_dsn) == catalog(dsn)
