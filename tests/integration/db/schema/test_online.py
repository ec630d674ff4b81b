"""Work goes on while an old database is migrated: nobody waits for a second, and no key gives two runs.

PGSCHED_MIGRATE_ROWS=10000000 does it with that many rows (docs/operations.md has the figures); add -s to see them, and
--timeout 3600.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgsched.db.schema import migrate, version
from tests.support.paths import ROOT
from tests.support.schema.probing import Prober, copied, fill

ROWS = int(os.environ.get("PGSCHED_MIGRATE_ROWS", "20000"))
MOST_S = 1.0


@pytest.fixture(scope="module")
def filled(maintenance: psycopg.Connection[Any], server_dsn: str, session_name: str) -> Any:
    name = f"pgsched_filled_{session_name}_{uuid.uuid4().hex[:6]}"
    maintenance.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    dsn = make_conninfo(server_dsn, dbname=name)
    migrate.upgrade(dsn, to="0001")
    fill(dsn, ROWS)
    yield name
    maintenance.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["0001", "0002", "0003"])
def old(
    maintenance: psycopg.Connection[Any],
    server_dsn: str,
    session_name: str,
    filled: str,
    request: pytest.FixtureRequest,
) -> Any:
    name = f"pgsched_old_{session_name}_{uuid.uuid4().hex[:6]}"
    with copied(maintenance, filled, name):
        dsn = make_conninfo(server_dsn, dbname=name)
        migrate.upgrade(dsn, to=request.param)
        yield dsn


def migrating(dsn: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pgsched", "migrate", "--dsn", dsn]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_nobody_waits_long_for_a_migration(old: str, request: pytest.FixtureRequest) -> None:
    start = request.node.callspec.params["old"]
    with Prober(old) as prober:
        time.sleep(1 if ROWS < 1_000_000 else 20)  # what it waits without a migration
        calm, prober.longest = prober.longest, {}
        began = time.monotonic()
        process = migrating(old)
        output, told = process.communicate(timeout=3000)
        took = time.monotonic() - began
    assert process.returncode == 0, told
    waits = [f"{name} {1000 * most:.0f} ms (calm {1000 * calm[name]:.0f})" for name, most in prober.longest.items()]
    print(f"\n{ROWS} rows, from {start}: {took:.1f} s; longest waits {', '.join(waits)}")
    assert prober.errors == []
    assert f"the schema is version {version.SCHEMA_VERSION} (was {start})" in output
    assert "tables and functions" in told
    with psycopg.connect(old) as db:
        version.check(db)
        kept = db.execute("SELECT count(*) FROM pgsched.kept_keys WHERE key LIKE 'key %'").fetchone()
        assert kept == (ROWS // 100,)
        lost = db.execute("SELECT count(*) FROM pgsched.runs WHERE task = 'probe' AND idempotency_key IS NOT NULL"
                          " AND idempotency_key NOT IN (SELECT key FROM pgsched.kept_keys)").fetchone()  # fmt: skip
        assert lost == (0,)
    assert max(prober.longest.values()) < MOST_S, prober.longest


def test_a_long_transaction_holds_up_the_migration_and_nobody_else(old: str) -> None:
    """The migration asks for half a second at a time, says who is in the way, and goes on when he is gone."""
    with psycopg.connect(old, application_name="a long report") as reader, Prober(old) as prober:
        reader.execute("SELECT 'report' FROM pgsched.runs LIMIT 1")
        pid = reader.info.backend_pid
        process = migrating(old)
        assert process.stderr is not None
        said = ""
        while "a long report" not in said:
            line = process.stderr.readline()
            assert line, f"it ended: {said}"
            said += line
        prober.longest = {}
        line = process.stderr.readline()  # again, four tries later
        longest = dict(prober.longest)
        reader.rollback()
        process.communicate(timeout=60)
    assert "a long report" in line
    assert f"pid {pid}" in said
    assert process.returncode == 0
    assert prober.errors == []
    assert max(longest.values()) < MOST_S, longest


def test_a_lock_that_is_never_to_be_had_ends_with_one_line(old: str) -> None:
    with psycopg.connect(old) as reader:
        reader.execute("LOCK TABLE pgsched.jobs")
        command = [sys.executable, "-m", "pgsched", "migrate", "--wait", "2", "--dsn", old]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "LOCK TABLE pgsched.jobs is in the way; what was done stays" in ended.stderr.splitlines()[-1]
