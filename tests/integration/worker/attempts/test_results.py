"""A result that is too large fails its run with a clear error, wherever the handler runs, and delays no other run."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.app.base import import_app
from tests.support.working import add, all_ended, work

app = import_app("tests.support.apps.talking:app")
FITS, TOO_LARGE = 1_000_000, 1_048_575


@pytest.mark.few(1)
@pytest.mark.parametrize("task", ["gives", "gives_on_loop", "gives_from_a_process"])
def test_a_result_over_the_size_limit_fails_with_a_clear_error(task: str, dsn: str, db: psycopg.Connection) -> None:
    small, large, other = (add(db, "task", task, {"size": size}) for size in (FITS, TOO_LARGE, 3))
    db.execute("UPDATE pgsched.runs SET max_attempts = 3")
    worker = work(dsn, app, lambda: all_ended(db))
    assert worker.verdicts == {"succeeded": 2, "dead": 1}
    rows = db.execute("SELECT id, state, length(result #>> '{}'), error FROM pgsched.runs ORDER BY id").fetchall()
    assert rows == [
        (small, "succeeded", FITS, None),
        (large, "dead", None, "the result (str) takes 1,048,577 bytes; at most 1,048,576 are allowed"),
        (other, "succeeded", 3, None),
    ]


def test_many_small_values_count_with_their_size_in_the_database(dsn: str, db: psycopg.Connection) -> None:
    add(db, "task", "gives_numbers", {"count": 150_000})
    work(dsn, app, lambda: all_ended(db))
    row = db.execute("SELECT state, error FROM pgsched.runs").fetchone()
    assert row is not None and row[0] == "dead"
    assert row[1].startswith("the result (list) takes ") and "at most 1,048,576 are allowed" in row[1]
