"""A filled database is migrated to the next release while other sessions work: none of them waits for a second.

PGSCHED_MIGRATE_ROWS=10000000 fills the database with that many rows; docs/how-to/operations.md has the figures. Add -s
to see the figures of a run, and --timeout 3600.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgsched.db.schema import migrate, version
from tests.support.schema.probing import Prober, copied, fill
from tests.support.schema.releases import NEXT, command, run

ROWS = int(os.environ.get("PGSCHED_MIGRATE_ROWS", "20000"))
MOST_S = 1.0


@pytest.fixture(scope="module")
def filled(maintenance: psycopg.Connection[Any], server_dsn: str, session_name: str) -> Any:
    name = f"pgsched_filled_{session_name}_{uuid.uuid4().hex[:6]}"
    maintenance.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    dsn = make_conninfo(server_dsn, dbname=name)
    migrate.upgrade(dsn)
    fill(dsn, ROWS)
    yield name
    maintenance.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def old(
    maintenance: psycopg.Connection[Any],
    server_dsn: str,
    session_name: str,
    filled: str,
) -> Any:
    name = f"pgsched_old_{session_name}_{uuid.uuid4().hex[:6]}"
    with copied(maintenance, filled, name):
        yield make_conninfo(server_dsn, dbname=name)


def test_nobody_waits_long_for_a_migration(old: str, released: Path) -> None:
    with Prober(old) as prober:
        time.sleep(1 if ROWS < 1_000_000 else 20)  # measure the waits without a migration
        calm, prober.longest = prober.longest, {}
        began = time.monotonic()
        process = command(released, "migrate", "--dsn", old)
        output, told = process.communicate(timeout=3000)
        took = time.monotonic() - began
    assert process.returncode == 0, told
    waits = [f"{name} {1000 * most:.0f} ms (calm {1000 * calm[name]:.0f})" for name, most in prober.longest.items()]
    print(f"\n{ROWS} rows: {took:.1f} s; longest waits {', '.join(waits)}")
    assert prober.errors == []
    assert f"the schema is version {NEXT} (was {version.SCHEMA_VERSION})" in output
    assert "tables and functions" in told
    with psycopg.connect(old) as db:
        noted = db.execute("SELECT count(*) FROM pgsched.runs WHERE note = 'from before'").fetchone()
        assert noted is not None and noted[0] >= ROWS
    assert max(prober.longest.values()) < MOST_S, prober.longest


@pytest.mark.long
def test_a_long_transaction_holds_up_the_migration_and_nobody_else(old: str, released: Path) -> None:
    """The migration asks for its lock half a second at a time, names the blocking session, and goes on when it ends."""
    with psycopg.connect(old, application_name="a long report") as reader, Prober(old) as prober:
        reader.execute("SELECT 'report' FROM pgsched.runs LIMIT 1")
        pid = reader.info.backend_pid
        process = command(released, "migrate", "--dsn", old)
        assert process.stderr is not None
        said = ""
        while "a long report" not in said:
            line = process.stderr.readline()
            assert line, f"it ended: {said}"
            said += line
        prober.longest = {}
        line = process.stderr.readline()  # the migration names the session again, four tries later
        longest = dict(prober.longest)
        reader.rollback()
        process.communicate(timeout=60)
    assert "a long report" in line
    assert f"pid {pid}" in said
    assert process.returncode == 0
    assert prober.errors == []
    assert max(longest.values()) < MOST_S, longest


@pytest.mark.long
def test_a_lock_that_never_becomes_free_ends_the_migration_with_one_line(old: str, released: Path) -> None:
    with psycopg.connect(old) as reader:
        reader.execute("LOCK TABLE pgsched.jobs")
        ended = run(released, "migrate", "--wait", "2", "--dsn", old)
    assert ended.returncode == 1
    assert "LOCK TABLE pgsched.jobs is in the way; what was done stays" in ended.stderr.splitlines()[-1]
