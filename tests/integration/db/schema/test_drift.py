"""The migrated tables match `pgsched/db/schema/tables.py`, and the drift check finds differences."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
import sqlalchemy

from pgsched.db.schema import migrate
from pgsched.db.schema.check import differences
from pgsched.db.schema.tables import metadata

pytestmark = [pytest.mark.pg14, pytest.mark.packages]


@pytest.fixture
def engine(db: psycopg.Connection) -> sqlalchemy.Engine:
    db.autocommit = False
    return sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: db, poolclass=sqlalchemy.StaticPool)


def found(engine: sqlalchemy.Engine) -> list[Any]:
    with engine.connect() as bind:
        return differences(bind)


def columns(metadata: sqlalchemy.MetaData) -> dict[str, list[tuple[str, str, bool, bool]]]:
    dialect = sqlalchemy.dialects.postgresql.dialect()
    return {
        table.name: [(c.name, c.type.compile(dialect), bool(c.nullable), c.primary_key) for c in table.columns]
        for table in metadata.tables.values()
        if table.name != "alembic_version"
    }


def test_the_migrated_database_is_what_tables_py_says(engine: sqlalchemy.Engine) -> None:
    assert found(engine) == []


def test_a_list_of_schemas_that_lacks_ours_is_no_drift(
    engine: sqlalchemy.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.dialect, "get_schema_names", lambda *_, **__: ["public"])
    assert found(engine) == []


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
    assert sorted(kind for kind, *_ in found(engine)) == ["add_column", "add_index"]


def test_the_search_path_is_set_once_and_keeps_its_earlier_entries(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as db:
        db.execute(f'ALTER DATABASE "{db.info.dbname}" SET search_path = app, public')
    for _ in range(2):
        migrate.upgrade(empty_dsn, set_search_path=True)
    with psycopg.connect(empty_dsn) as db:
        assert db.execute("SHOW search_path").fetchone() == ("app, public, pgsched",)
        db.execute("INSERT INTO jobs (name, task) VALUES ('plain', 'x')")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("pgsched_old, public", "pgsched_old, public, pgsched"),
        ('"a ""pgsched"", b", public', '"a ""pgsched"", b", public, pgsched'),
        ("public, PGSCHED", "public, pgsched"),
        ('"PGSCHED"', '"PGSCHED", pgsched'),
        ("''", "pgsched"),
    ],
)
def test_only_a_schema_called_pgsched_counts_as_on_the_search_path(empty_dsn: str, before: str, after: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as db:
        db.execute(f'ALTER DATABASE "{db.info.dbname}" SET search_path = {before}'.encode())
    migrate.upgrade(empty_dsn, set_search_path=True)
    with psycopg.connect(empty_dsn) as db:
        assert db.execute("SHOW search_path").fetchone() == (after,)
