"""Whatever way a database came to its version, its schema is the same; and the last revision can be taken back."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest
from pgsched.db.schema.downgrade import CREATED, DROPPED, created, text_of

from pgsched.db.schema import migrate
from pgsched.db.schema.script import upgrade_sql
from pgsched.db.schema.version import SCHEMA_VERSION, VERSIONS
from tests.support.paths import ROOT
from tests.support.schema.catalog import apply_script, catalog

MIGRATIONS = ROOT / "migrations"


def test_up_down_and_up_again_leaves_the_same_schema(empty_dsn: str) -> None:
    migrate.upgrade(empty_dsn, to="0003")
    old = catalog(empty_dsn)
    migrate.upgrade(empty_dsn)
    new = catalog(empty_dsn)
    assert old != new
    assert migrate.upgrade(empty_dsn, to="0003") == (SCHEMA_VERSION, "0003")
    assert catalog(empty_dsn) == old
    migrate.upgrade(empty_dsn)
    assert catalog(empty_dsn) == new


def test_all_at_once_and_step_by_step_are_the_same(empty_dsn: str, dsn: str) -> None:
    for version in VERSIONS:
        migrate.upgrade(empty_dsn, to=version)
    assert catalog(empty_dsn) == catalog(dsn)


@pytest.mark.parametrize("version", [None, *VERSIONS])
def test_the_script_brings_every_version_to_the_same_schema(version: str | None, empty_dsn: str, dsn: str) -> None:
    if version is not None:
        migrate.upgrade(empty_dsn, to=version)
    for _ in range(2):  # the second time, it does nothing
        done = apply_script(empty_dsn, upgrade_sql())
        assert (done.returncode, done.stderr) == (0, "")
    assert catalog(empty_dsn) == catalog(dsn)
    assert migrate.upgrade(empty_dsn)[0] == SCHEMA_VERSION


def test_the_script_leaves_a_newer_schema_alone(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("UPDATE pgsched.alembic_version SET version_num = '9999'")
    done = apply_script(dsn, upgrade_sql())
    assert done.returncode == 3
    assert "the schema is newer than this script" in done.stderr


def test_a_script_that_was_cut_off_goes_on(empty_dsn: str, dsn: str) -> None:
    """Cut after every line that ends a step."""
    lines = upgrade_sql().splitlines(keepends=True)
    cuts = [n for n, line in enumerate(lines) if line.startswith(("\\echo", "COMMIT;"))]
    migrate.upgrade(empty_dsn, to="0001")
    for cut in cuts[:: max(1, len(cuts) // 8)]:
        apply_script(empty_dsn, "".join(lines[:cut]))
    assert apply_script(empty_dsn, upgrade_sql()).returncode == 0
    assert catalog(empty_dsn) == catalog(dsn)


def test_functions_are_found_in_the_texts(dsn: str) -> None:
    """What is taken back is read from the files: none may be written so that it is not seen."""
    for folder in sorted(MIGRATIONS.glob("0*")):
        text = text_of(folder)
        names = re.findall(r"(?im)^\s*CREATE (?:OR REPLACE )?FUNCTION\s+(\S+?)\(", text)
        assert sorted(f"pgsched.{name}" for name in CREATED.findall(text)) == sorted(names)
        assert len(set(names)) == len(names), "a function with two texts or two signatures"
        assert len(re.findall(r"(?im)^\s*DROP FUNCTION", text)) == len(DROPPED.findall(text))
        assert created(text).keys() == {name.removeprefix("pgsched.") for name in names}


def test_a_check_that_old_rows_break_stays_for_new_ones(empty_dsn: str, dsn: str) -> None:
    migrate.upgrade(empty_dsn, to="0003")
    told: list[str] = []
    with psycopg.connect(empty_dsn, autocommit=True) as db:
        db.execute("ALTER TABLE pgsched.attempts ADD CONSTRAINT attempts_new CHECK (attempt > 7) NOT VALID")
        db.execute("ALTER TABLE pgsched.attempts ADD CONSTRAINT attempts_old CHECK (attempt > 0) NOT VALID")
        db.execute("ALTER TABLE pgsched.attempts DROP CONSTRAINT attempts_new")
        db.execute("INSERT INTO pgsched.attempts (run_id, token, attempt, outcome)"
                   " VALUES (1, gen_random_uuid(), 1, 'failed')")  # fmt: skip
        db.execute("ALTER TABLE pgsched.attempts ADD CONSTRAINT attempts_new CHECK (attempt > 7) NOT VALID")
        migrate.upgrade(empty_dsn, tell=told.append)
        valid = dict(
            db.execute("SELECT conname, convalidated FROM pg_constraint WHERE conname LIKE 'attempts_%'").fetchall()
        )
        assert valid["attempts_old"]
        assert not valid["attempts_new"]
        assert any("attempts_new of attempts holds for new rows only" in line for line in told)
        with pytest.raises(psycopg.errors.CheckViolation):
            db.execute("INSERT INTO pgsched.attempts (run_id, token, attempt, outcome)"
                       " VALUES (2, gen_random_uuid(), 1, 'failed')")  # fmt: skip


def test_rows_of_the_last_version_survive_its_way_back(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('a', 'b', '* * * * *')")
        db.execute("SELECT pgsched.enqueue('c', idempotency_key => 'k')")
        migrate.upgrade(dsn, to="0003")
        assert db.execute("SELECT task, state FROM pgsched.runs").fetchall() == [("c", "queued")]
        again: Any = db.execute("SELECT how FROM pgsched.enqueue_result('c', idempotency_key => 'k')").fetchone()
        assert again == ("repeated",)
        db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('d', 'b', '* * * * *')")
