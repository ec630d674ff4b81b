"""Which schema versions a program accepts, and which it refuses without changing the database."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest

from pgsched.db.connection.connect import connect
from pgsched.db.schema import migrate, version
from pgsched.errors import InputError, SchemaTooNew, SchemaTooOld
from tests.support.paths import ROOT

MIGRATIONS = ROOT / "migrations"
STAMP = "UPDATE pgsched.alembic_version SET version_num = %s"


def test_every_revision_has_its_statements_and_alembic_knows_the_same_order() -> None:
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(migrate.configuration())
    assert tuple(reversed([script.revision for script in scripts.walk_revisions()])) == version.VERSIONS
    assert {path.name for path in MIGRATIONS.iterdir() if path.is_dir()} - {"versions", "__pycache__"} == {
        *version.VERSIONS
    }
    assert [name for name in version.VERSIONS if not list((MIGRATIONS / name).glob("*.sql"))] == []


def test_migrating_twice_changes_nothing(empty_dsn: str) -> None:
    assert migrate.upgrade(empty_dsn) == (None, version.SCHEMA_VERSION)
    with psycopg.connect(empty_dsn, autocommit=True) as db:
        before = db.execute("SELECT max(oid::bigint) FROM pg_class").fetchone()
        assert migrate.upgrade(empty_dsn) == (version.SCHEMA_VERSION, version.SCHEMA_VERSION)
        assert db.execute("SELECT max(oid::bigint) FROM pg_class").fetchone() == before


@pytest.mark.long
def test_four_processes_may_migrate_at_once(empty_dsn: str) -> None:
    code = f"from pgsched.db.schema.migrate import upgrade; print(upgrade({empty_dsn!r}))"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    ended = [process.communicate(timeout=90) for process in started]
    assert [process.returncode for process in started] == [0] * 4, ended
    assert sum("(None," in output for output, _ in ended) == 1, ended
    with connect(empty_dsn) as conn:
        version.check_version(conn)


def test_a_database_without_the_schema_is_too_old(empty_dsn: str) -> None:
    with connect(empty_dsn) as conn, pytest.raises(SchemaTooOld, match="no pgsched schema: run `pgsched migrate`"):
        version.check_version(conn)


def test_an_older_schema_is_refused_with_what_to_do(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions are compared by their place in the list: as a string, 0500_later would be the older one."""
    newest = version.SCHEMA_VERSION
    monkeypatch.setattr(version, "VERSIONS", (*version.VERSIONS, "0500_later"))
    monkeypatch.setattr(version, "SCHEMA_VERSION", "0500_later")
    with connect(dsn) as conn:
        with pytest.raises(SchemaTooOld, match=f"version {newest}, older than 0500_later: run `pgsched migrate`"):
            version.check_version(conn)
        conn.execute(STAMP, ["0500_later"])
        version.check_version(conn)


@pytest.mark.parametrize("unknown", ["9999", "0000", "0012", "1000", "1900_unknown"])
def test_an_unknown_version_counts_as_newer_and_is_not_changed(dsn: str, unknown: str) -> None:
    with connect(dsn) as conn:
        conn.execute(STAMP, [unknown])
        with pytest.raises(SchemaTooNew, match=f"version {unknown}, newer than .*: upgrade this pgsched"):
            version.check_version(conn)
        with pytest.raises(SchemaTooNew):
            migrate.upgrade(dsn)
        assert version.current(conn) == unknown


@pytest.mark.parametrize("old", [f"{number:04}" for number in range(1, 12)])
def test_a_database_from_before_0_1_0_is_refused_and_never_changed(empty_dsn: str, old: str) -> None:
    with connect(empty_dsn) as conn:
        conn.execute("CREATE SCHEMA pgsched")
        conn.execute("CREATE TABLE pgsched.alembic_version (version_num varchar(32) NOT NULL)")
        conn.execute("INSERT INTO pgsched.alembic_version VALUES (%s)", [old])
        reason = f"version {old}, made before 0.1.0: dump what you need, drop schema pgsched"
        for refuse in (lambda: version.check_version(conn), lambda: migrate.upgrade(empty_dsn)):
            with pytest.raises(SchemaTooOld, match=reason) as raised:
                refuse()
            assert raised.value.exit_code == 5
        left = "SELECT relname FROM pg_class WHERE relnamespace = 'pgsched'::regnamespace"
        assert conn.execute(left).fetchall() == [("alembic_version",)]
        assert version.current(conn) == old


def test_migrating_to_an_unknown_version_is_refused(empty_dsn: str) -> None:
    with pytest.raises(InputError, match="there is no version '0042'"):
        migrate.upgrade(empty_dsn, to="0042")
    with connect(empty_dsn) as conn:
        assert version.current(conn) is None
