"""A dump by pg_dump can be restored into another database: the whole schema, or the data alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.db.embedded.server import bin_dir
from pgsched.db.schema.migrate import upgrade
from tests.support.db.leading import lead
from tests.support.logins import one

TABLES = "SELECT relname FROM pg_class WHERE relnamespace = 'pgsched'::regnamespace AND relkind = 'r' ORDER BY 1"
DATA = ("--data-only", "--disable-triggers", "--exclude-table=pgsched.alembic_version")


def program(name: str, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    path = Path(os.environ.get("PGSCHED_TEST_BIN") or bin_dir()) / name
    if not path.exists():
        pytest.skip(f"there is no {name}")
    return subprocess.run([path, *args], input=stdin, capture_output=True, text=True, timeout=60)


def dump(dsn: str, *options: str) -> str:
    done = program("pg_dump", "--schema=pgsched", *options, f"--dbname={dsn}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def load(dsn: str, text: str) -> str:
    """Load a dump in one transaction, and return psql's error output."""
    return program("psql", "-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", "-d", dsn, stdin=text).stderr


def fill(db: psycopg.Connection[Any]) -> None:
    """Insert a job, settings, and runs with keys and a parent, and let a leader work on them."""
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('j', 't', '@every 1h')")
    db.execute("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('q', 1)")
    db.execute("UPDATE pgsched.retention SET keep_hours = '500 days'")
    first = one(db, "SELECT pgsched.enqueue('t', idempotency_key => 'i', queue => 'q')")
    db.execute("SELECT pgsched.enqueue('t', unique_key => 'k', after => ARRAY[%s::bigint])", [first])
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', started_at = now(), finished_at = now() WHERE id = %s",
               [first])  # fmt: skip
    loop = lead(db)
    for _ in range(3):
        loop.run_once()
    loop.term.resign()


def contents(db: psycopg.Connection[Any]) -> dict[str, list[str]]:
    return {
        name: sorted(text for (text,) in db.execute(f"SELECT t::text FROM pgsched.{name} t".encode()).fetchall())
        for (name,) in db.execute(TABLES.encode()).fetchall()
    }


def whole(dsn: str, text: str) -> None:
    assert load(dsn, text) == ""


def alone(dsn: str, text: str) -> None:
    upgrade(dsn)
    assert "duplicate key" in load(dsn, text), "rows that the migration makes are there"
    with psycopg.connect(dsn) as db:
        names = [f"pgsched.{name}" for (name,) in db.execute(TABLES.encode()) if name != "alembic_version"]
        db.execute(f"TRUNCATE {', '.join(names)}".encode())
    assert load(dsn, text) == ""


@pytest.mark.few(1)
@pytest.mark.parametrize(("options", "restore"), [((), whole), (DATA, alone)])
def test_a_restored_dump_continues_where_the_original_stopped(
    dsn: str, empty_dsn: str, db: psycopg.Connection[Any], options: tuple[str, ...],
    restore: Callable[[str, str], None],
) -> None:  # fmt: skip
    fill(db)
    before = contents(db)
    restore(empty_dsn, dump(dsn, *options))
    upgrade(empty_dsn)
    with psycopg.connect(empty_dsn, autocommit=True) as copy:
        assert contents(copy) == before
        newest = one(copy, "SELECT max(id) FROM pgsched.runs")
        assert one(copy, "SELECT pgsched.enqueue('t', idempotency_key => 'i')") == 1, "the key is known"
        assert one(copy, "SELECT pgsched.enqueue('t')") > newest
        loop = lead(copy)
        for _ in range(3):
            loop.run_once()
        assert one(copy, "SELECT count(*) FROM pgsched.runs WHERE unique_key = 'k' AND state = 'queued'") == 1
