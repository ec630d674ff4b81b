"""Migrating: the tables are what `db/schema/tables.py` says, however often and by however many it is done."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import sqlalchemy
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from pgsched.db.connection.connect import connect
from pgsched.db.schema import migrate, version
from pgsched.db.schema.tables import metadata
from pgsched.errors import InputError, SchemaTooNew, SchemaTooOld
from tests.support.paths import ROOT


@pytest.fixture
def engine(db: psycopg.Connection) -> sqlalchemy.Engine:
    db.autocommit = False
    return sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: db, poolclass=sqlalchemy.StaticPool)


def ours(name: str | None, kind: str, _: object) -> bool:
    return kind != "schema" or name == "pgsched"


def differences(engine: sqlalchemy.Engine) -> list[Any]:
    options = {"include_schemas": True, "include_name": ours, "version_table_schema": "pgsched", "compare_type": True}
    with engine.connect() as bind:
        return list(compare_metadata(MigrationContext.configure(bind, opts=options), metadata))


def columns(metadata: sqlalchemy.MetaData) -> dict[str, list[tuple[str, str, bool, bool]]]:
    dialect = sqlalchemy.dialects.postgresql.dialect()
    return {
        table.name: [(c.name, c.type.compile(dialect), bool(c.nullable), c.primary_key) for c in table.columns]
        for table in metadata.tables.values()
        if table.name != "alembic_version"
    }


def test_the_migrated_database_is_what_tables_py_says(engine: sqlalchemy.Engine) -> None:
    assert differences(engine) == []


def test_tables_py_names_every_column_in_order_with_its_type_and_key(engine: sqlalchemy.Engine) -> None:
    reflected = sqlalchemy.MetaData(schema="pgsched")
    with engine.connect() as bind:
        reflected.reflect(bind)
    assert columns(reflected) == columns(metadata)


def test_the_drift_check_sees_a_dropped_column_and_a_changed_index(
    db: psycopg.Connection, engine: sqlalchemy.Engine
) -> None:
    db.execute("ALTER TABLE pgsched.runs DROP COLUMN progress CASCADE")
    db.execute("DROP INDEX pgsched.runs_waiting")
    db.commit()
    assert sorted(kind for kind, *_ in differences(engine)) == ["add_column", "add_index"]


def test_migrating_twice_changes_nothing(empty_dsn: str) -> None:
    assert migrate.upgrade(empty_dsn) == (None, version.SCHEMA_VERSION)
    with psycopg.connect(empty_dsn, autocommit=True) as db:
        before = db.execute("SELECT max(oid::bigint) FROM pg_class").fetchone()
        assert migrate.upgrade(empty_dsn) == (version.SCHEMA_VERSION, version.SCHEMA_VERSION)
        assert db.execute("SELECT max(oid::bigint) FROM pg_class").fetchone() == before


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
    first = sum("(None," in output for output, _ in ended)
    assert first >= 1, ended
    with connect(empty_dsn) as conn:
        version.check(conn)


def moved(dsn: str, move: Callable[[Any, str], None], revision: str) -> None:
    """Let alembic move the database up or down to this revision."""
    with psycopg.connect(dsn) as db:
        engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: db, poolclass=sqlalchemy.StaticPool)
        with engine.connect() as bind, bind.begin():
            bind.execute(sqlalchemy.text("CREATE SCHEMA IF NOT EXISTS pgsched"))
            config = migrate.configuration()
            config.attributes["connection"] = bind
            move(config, revision)


def test_a_database_of_the_first_version_keeps_its_rows(empty_dsn: str) -> None:
    moved(empty_dsn, command.upgrade, "0001")
    with psycopg.connect(empty_dsn, autocommit=True) as db:
        db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('a', 'b', '* * * * *')")
        db.execute("INSERT INTO pgsched.runs (task, idempotency_key) VALUES ('c', 'k')")
        assert migrate.upgrade(empty_dsn) == ("0001", version.SCHEMA_VERSION)
        assert db.execute("SELECT name FROM pgsched.jobs").fetchall() == [("a",)]
        assert db.execute("SELECT task, state FROM pgsched.runs").fetchall() == [("c", "queued")]
        again = "SELECT how FROM pgsched.enqueue_result('c', idempotency_key => 'k')"
        assert db.execute(again).fetchall() == [("repeated",)]


def test_no_version_but_the_last_is_taken_back(empty_dsn: str) -> None:
    migrate.upgrade(empty_dsn)
    with pytest.raises(InputError, match="restore a backup"):
        migrate.upgrade(empty_dsn, to="0002")
    migrate.upgrade(empty_dsn, to="0003")
    with pytest.raises(InputError, match="restore a backup"):
        migrate.upgrade(empty_dsn, to="0002")
    with pytest.raises(InputError, match="there is no version '0042'"):
        migrate.upgrade(empty_dsn, to="0042")
    assert migrate.upgrade(empty_dsn)[0] == "0003"


def test_downgrading_to_base_leaves_nothing_but_alembics_own_table(empty_dsn: str) -> None:
    migrate.upgrade(empty_dsn)
    moved(empty_dsn, command.downgrade, "base")
    with psycopg.connect(empty_dsn) as db:
        left = "SELECT relname FROM pg_class WHERE relnamespace = 'pgsched'::regnamespace AND relkind IN ('r', 'v')"
        assert db.execute(left).fetchall() == [("alembic_version",)]
        assert db.execute("SELECT FROM pg_proc WHERE pronamespace = 'pgsched'::regnamespace").fetchall() == []
        assert version.current(db) is None
    assert migrate.upgrade(empty_dsn) == (None, version.SCHEMA_VERSION)


def test_a_database_without_the_schema_is_too_old(empty_dsn: str) -> None:
    with connect(empty_dsn) as conn, pytest.raises(SchemaTooOld, match="no pgsched schema: run `pgsched migrate`"):
        version.check(conn)


def test_an_older_schema_is_refused_with_what_to_do(dsn: str) -> None:
    with connect(dsn) as conn:
        conn.execute("UPDATE pgsched.alembic_version SET version_num = '0000'")
        with pytest.raises(SchemaTooOld, match=r"version 0000, older than .*: run `pgsched migrate`"):
            version.check(conn)


def test_a_newer_schema_is_refused_and_not_touched(dsn: str) -> None:
    with connect(dsn) as conn:
        conn.execute("UPDATE pgsched.alembic_version SET version_num = '9999'")
        with pytest.raises(SchemaTooNew, match=r"version 9999, newer than .*: upgrade this pgsched"):
            version.check(conn)
        with pytest.raises(SchemaTooNew):
            migrate.upgrade(dsn)
        assert version.current(conn) == "9999"


def test_the_search_path_is_set_once_and_keeps_what_was_there(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as db:
        db.execute(f'ALTER DATABASE "{db.info.dbname}" SET search_path = app, public')
    for _ in range(2):
        migrate.upgrade(empty_dsn, set_search_path=True)
    with psycopg.connect(empty_dsn) as db:
        assert db.execute("SHOW search_path").fetchone() == ("app, public, pgsched",)
        db.execute("INSERT INTO jobs (name, task) VALUES ('plain', 'x')")


def test_every_revision_is_shipped_with_its_statements() -> None:
    shipped = [path.name.split("_")[0] for path in migrate.revisions()]
    assert shipped[-1] == version.SCHEMA_VERSION
    assert [name for name in shipped if not list((ROOT / "migrations" / name).glob("*.sql"))] == []


@pytest.mark.parametrize("mark", ["start", "slot"])
def test_a_mark_that_stood_at_a_start_to_come_goes_back(empty_dsn: str, mark: str) -> None:
    """`slot`: the mark is that of a slot which a clock that stepped back left ahead, and stays."""
    moved(empty_dsn, command.upgrade, "0001")
    with psycopg.connect(empty_dsn, autocommit=True) as db:
        db.execute("INSERT INTO pgsched.jobs (name, task, schedule, starts_at) VALUES"
                   " ('a', 'b', '* * * * *', now() + interval '1 year'), ('c', 'b', '* * * * *', NULL)")  # fmt: skip
        db.execute("UPDATE pgsched.jobs SET starts_at = NULL WHERE name = 'a'")
        if mark == "slot":
            db.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, task, origin, state, finished_at)"
                       " SELECT id, decided_until, 'b', 'schedule', 'succeeded', now() FROM pgsched.jobs")  # fmt: skip
        marks = "SELECT decided_until, updated_at, next_run_at FROM pgsched.jobs ORDER BY name"
        before = db.execute(marks).fetchall()
        migrate.upgrade(empty_dsn)
        after = db.execute(marks).fetchall()
        if mark == "start":
            assert after[0][0] == before[0][1] < before[0][0], "the last edit"
            assert after[0][2] > before[0][2], "the leader plans it again"
            assert after[1:] == before[1:]
        else:
            assert after == before
        db.execute("UPDATE pgsched.jobs SET decided_until = '2001-01-01Z'")
        assert [row[0] for row in db.execute(marks).fetchall()] == [row[0] for row in after], "the mark only rises"
