"""A migration that is killed at any step is continued by the next run.

Old rows that break a new check do not stop a migration.
"""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import psycopg
import pytest

from pgsched.db.connection.connect import connect
from pgsched.db.schema.dump import schema_text
from tests.support.schema.probing import fill
from tests.support.schema.releases import NEXT, STEPS, command, run

ROWS = 5_000


@pytest.fixture
def expected(released: Path, empty_dsn: str) -> str:
    """Return the schema text that the next release's migration makes of an empty database."""
    assert run(released, "migrate", "--dsn", empty_dsn).returncode == 0
    return text_of(empty_dsn)


def text_of(dsn: str) -> str:
    with connect(dsn) as conn:
        return schema_text(conn)


def changed(text: str, expected: str) -> list[str]:
    lines = unified_diff(expected.splitlines(), text.splitlines(), "expected", "found", lineterm="", n=0)
    return list(lines)


def killed_at(release: Path, dsn: str, line: str) -> bool:
    """Start a migration, kill it when a line of its output begins with `line`, and return whether it was killed."""
    process = command(release, "migrate", "--dsn", dsn)
    assert process.stderr is not None
    for said in process.stderr:
        if said.startswith(line):
            process.kill()
    process.wait(timeout=60)
    return process.returncode == -9


@pytest.mark.long
def test_a_killed_migration_is_continued_by_the_next_run(released: Path, dsn: str, expected: str) -> None:
    fill(dsn, ROWS)
    told = [*STEPS, f"{NEXT}: tables"]
    assert sum(killed_at(released, dsn, line) for line in told) > len(told) // 2
    assert run(released, "migrate", "--dsn", dsn).returncode == 0
    assert changed(text_of(dsn), expected) == []
    with psycopg.connect(dsn) as db:
        assert db.execute("SELECT count(*) FROM pgsched.runs WHERE note = 'from before'").fetchone() == (ROWS,)


@pytest.mark.long
def test_an_index_whose_build_was_cut_off_is_rebuilt(released: Path, dsn: str, expected: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("CREATE INDEX runs_noted ON pgsched.runs (task)")
        db.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'pgsched.runs_noted'::regclass")
    assert run(released, "migrate", "--dsn", dsn).returncode == 0
    assert changed(text_of(dsn), expected) == []


def test_a_check_that_old_rows_break_holds_for_new_rows_only(released: Path, dsn: str) -> None:
    add = "INSERT INTO pgsched.attempts (run_id, token, attempt, outcome) VALUES (%s, gen_random_uuid(), 1, 'failed')"
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(add, [1])
        db.execute("ALTER TABLE pgsched.attempts ADD CONSTRAINT attempts_old CHECK (attempt > 0) NOT VALID")
        db.execute("ALTER TABLE pgsched.attempts ADD CONSTRAINT attempts_new CHECK (attempt > 7) NOT VALID")
        told = run(released, "migrate", "--dsn", dsn).stderr
        assert "attempts_new of attempts holds for new rows only" in told
        valid = dict(db.execute("SELECT conname::text, convalidated FROM pg_constraint"
                                " WHERE conname LIKE 'attempts_%'").fetchall())  # fmt: skip
        assert valid["attempts_old"]
        assert not valid["attempts_new"]
        with pytest.raises(psycopg.errors.CheckViolation):
            db.execute(add, [2])
