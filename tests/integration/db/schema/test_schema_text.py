"""The revisions, migrations/schema.sql and the script of `pgsched migrate --sql` make the same schema."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from pgsched.db.connection.connect import connect
from pgsched.db.schema import migrate
from pgsched.db.schema.dump import schema_path, schema_text
from pgsched.db.schema.script import upgrade_sql
from pgsched.db.schema.version import SCHEMA_VERSION
from tests.support.schema.psql import apply_script
from tests.support.schema.releases import run


def text_of(dsn: str) -> str:
    with connect(dsn) as conn:
        return schema_text(conn)


def test_the_text_is_what_the_revisions_make(dsn: str) -> None:
    """If this fails, `python -m pgsched.db.schema.dump` writes the text again."""
    assert text_of(dsn).splitlines() == schema_path().read_text(encoding="utf-8").splitlines()


def test_the_text_makes_the_same_schema(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as db:
        db.execute(schema_path().read_bytes())
    assert text_of(empty_dsn) == schema_path().read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE pgsched.runs ADD COLUMN mine int",
        "ALTER TABLE pgsched.runs ALTER COLUMN priority SET DEFAULT 4",
        "ALTER TABLE pgsched.runs ALTER COLUMN queue DROP NOT NULL",
        "ALTER TABLE pgsched.runs SET (fillfactor = 50)",
        "ALTER TABLE pgsched.run_logs RESET (toast.autovacuum_vacuum_cost_delay)",
        "ALTER TABLE pgsched.runs DROP CONSTRAINT runs_state",
        "ALTER TABLE pgsched.passed_over DROP CONSTRAINT passed_over_job_id_fkey",
        "DROP INDEX pgsched.runs_waiting",
        "DROP TRIGGER a_met ON pgsched.kept_keys",
        "ALTER TABLE pgsched.runs DISABLE TRIGGER z_phase",
        "ALTER FUNCTION pgsched.utc(timestamptz) RESET ALL",
        "DROP AGGREGATE pgsched.histogram(integer, numeric)",
        "CREATE VIEW pgsched.mine AS SELECT 1 AS one",
        "CREATE SEQUENCE pgsched.mine",
        "REVOKE SELECT ON SEQUENCE pgsched.told_at FROM PUBLIC",
        "REVOKE EXECUTE ON FUNCTION pgsched.utc(timestamptz) FROM PUBLIC",
        "COMMENT ON COLUMN pgsched.runs.id IS 'mine'",
        "COMMENT ON FUNCTION pgsched.retry(bigint) IS NULL",
    ],
)
def test_every_change_shows_in_the_text(db: psycopg.Connection, dsn: str, change: str) -> None:
    db.execute(change.encode())
    assert text_of(dsn) != schema_path().read_text(encoding="utf-8")


def test_the_script_makes_the_same_schema_and_then_does_nothing(empty_dsn: str) -> None:
    for _ in range(2):
        done = apply_script(empty_dsn, upgrade_sql())
        assert (done.returncode, done.stderr, done.stdout.split("\n")[-1]) == (0, "", "")
    assert text_of(empty_dsn) == schema_path().read_text(encoding="utf-8")
    assert migrate.upgrade(empty_dsn) == (SCHEMA_VERSION, SCHEMA_VERSION)


@pytest.mark.parametrize("version", ["1900_unknown", "9999"])
def test_the_script_leaves_a_newer_schema_alone(dsn: str, version: str) -> None:
    refused_by_the_script(dsn, version, "the schema is newer than this script")


@pytest.mark.parametrize("version", ["0001", "0011"])
def test_the_script_leaves_a_schema_from_before_0_1_0_alone(dsn: str, version: str) -> None:
    refused_by_the_script(dsn, version, "made before 0.1.0: dump what you need, drop schema pgsched")


def refused_by_the_script(dsn: str, version: str, reason: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("UPDATE pgsched.alembic_version SET version_num = %s", [version])
        done = apply_script(dsn, upgrade_sql())
        assert done.returncode == 3
        assert reason in done.stderr
        assert db.execute("SELECT version_num FROM pgsched.alembic_version").fetchall() == [(version,)]


@pytest.fixture
def next_text(released: Path, empty_dsn: str) -> str:
    """Return the schema text that the next release's own migration makes."""
    assert run(released, "migrate", "--dsn", empty_dsn).returncode == 0
    return text_of(empty_dsn)


@pytest.mark.long
def test_the_script_of_the_next_release_goes_on_from_this_one(released: Path, dsn: str, next_text: str) -> None:
    """The script also continues after it was cut off behind any line that ends a step."""
    lines = run(released, "migrate", "--sql").stdout.splitlines(keepends=True)
    cuts = [n for n, line in enumerate(lines) if line.startswith(("\\echo", "COMMIT;"))]
    assert len(cuts) > 4
    for cut in [*cuts, len(lines)]:
        done = apply_script(dsn, "".join(lines[:cut]))
    assert (done.returncode, done.stderr) == (0, "")
    assert text_of(dsn) == next_text
