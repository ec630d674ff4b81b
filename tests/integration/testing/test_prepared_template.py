"""The database of the test kit holds the program's own tables too: `pgsched_prepare` makes them, once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.support.paths import ROOT

pytestmark = [pytest.mark.long, pytest.mark.packages, pytest.mark.scram]

SHOP = "from pgsched import App\napp = App('shop')\n@app.task\ndef welcome(user: int) -> None: ...\n"
TESTS = """
import psycopg
import pytest
import shop

PREPARE

@pytest.mark.parametrize("n", [1, 2])
def test_it(n, pgsched_database, pgsched_dsn):
    with psycopg.connect(pgsched_dsn) as conn:
        conn.execute("INSERT INTO customers VALUES (1)")
        shop.welcome.enqueue(1, connection=conn)
        rows = conn.execute("SELECT (SELECT count(*) FROM customers), (SELECT count(*) FROM pgsched.runs)").fetchone()
        assert rows == (1, 1), "each test has a database of its own"
"""
PSYCOPG = """
@pytest.fixture(scope="session")
def pgsched_prepare():
    def prepare(conn):
        with open("calls", "a") as calls:
            calls.write("called ")
        conn.execute("CREATE TABLE customers (id int)")

    return prepare
"""
SQLALCHEMY = """
import sqlalchemy as sa

metadata = sa.MetaData()
sa.Table("customers", metadata, sa.Column("id", sa.Integer))

@pytest.fixture(scope="session")
def pgsched_prepare():
    def prepare(conn):
        open("calls", "a").write("called ")
        metadata.create_all(sa.create_engine("postgresql+psycopg://", creator=lambda: conn))

    return prepare
"""
LEAKS = """
@pytest.fixture(scope="session")
def pgsched_prepare(pgsched_server_dsn):
    kept = []
    def prepare(conn):
        kept.append(psycopg.connect(pgsched_server_dsn, dbname=conn.info.dbname))
        conn.execute("CREATE TABLE customers (id int)")

    yield prepare
    kept[0].close()
"""
FAILS = """
@pytest.fixture(scope="session")
def pgsched_prepare():
    return lambda conn: conn.execute("CREATE TABEL customers (id int)")
"""


def play(folder: Path, prepare: str, dsn: str) -> subprocess.CompletedProcess[str]:
    """Run two tests of the program in a process of their own."""
    (folder / "shop.py").write_text(SHOP)
    (folder / "test_shop.py").write_text(TESTS.replace("PREPARE", prepare))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PGSCHED", "PYTEST"))}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "PGSCHED_TEST_DSN": dsn}
    kit = ["-p", "pgsched.testing.plugin", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", "."]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *kit, "-q", "--tb=short", "-o", "pgsched_app=shop:app", "test_shop.py"],
        cwd=folder, env=env, text=True, capture_output=True, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("prepare", [PSYCOPG, SQLALCHEMY], ids=["psycopg", "sqlalchemy"])
def test_the_program_s_tables_are_made_once_for_all_tests(prepare: str, tmp_path: Path, server_dsn: str) -> None:
    found = play(tmp_path, prepare, server_dsn)
    assert found.returncode == 0, found.stdout
    assert (tmp_path / "calls").read_text() == "called "


def test_a_connection_that_stays_open_is_named_as_the_reason(tmp_path: Path, server_dsn: str) -> None:
    found = play(tmp_path, LEAKS, server_dsn)
    assert "pgsched: PGSCHED_TEST_DSN: the template of the tests' databases is in use" in found.stdout, found.stdout
    assert "close every connection that pgsched_prepare opened" in found.stdout


def test_an_error_of_the_hook_is_shown_as_it_is(
    tmp_path: Path, server_dsn: str, maintenance: psycopg.Connection
) -> None:
    found = play(tmp_path, FAILS, server_dsn)
    assert "SyntaxError" in found.stdout and "CREATE TABEL" in found.stdout


def test_a_role_that_may_not_create_databases_is_told_so(
    tmp_path: Path, server_dsn: str, maintenance: psycopg.Connection
) -> None:
    role = f"poor_{os.getpid()}"
    maintenance.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x'").format(sql.Identifier(role)))
    try:
        found = play(tmp_path, PSYCOPG, make_conninfo(server_dsn, user=role, password="x"))
    finally:
        maintenance.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
    said = " ".join(found.stdout.split())
    assert f"pgsched: PGSCHED_TEST_DSN: role '{role}' may not create databases for tests: ALTER ROLE" in said, said
