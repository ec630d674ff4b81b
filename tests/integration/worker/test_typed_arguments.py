"""Workers call handlers with the types of their annotations, inline, in threads and in child processes alike."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb

from pgsched.app.base import import_app
from tests.support.working import all_ended, work

app = import_app("tests.support.apps.typed:app")
ORDER = {"lines": [{"price": "1.50", "count": 2}], "due": "2026-12-24"}
SENT = ["typed_inline", "typed_in_thread", "typed_in_process"]


@pytest.mark.parametrize("task", SENT)
def test_a_handler_gets_and_returns_typed_values(task: str, dsn: str, db: psycopg.Connection) -> None:
    db.execute("SELECT pgsched.enqueue(%s, %s)", [task, Jsonb({"order": ORDER, "n": 3})])
    worker = work(dsn, app, lambda: all_ended(db))
    assert worker.verdicts == {"succeeded": 1}, db.execute("SELECT error FROM pgsched.runs").fetchall()
    assert db.execute("SELECT result FROM pgsched.runs").fetchone() == (
        {"total": "9.00", "due": "2026-12-24", "kind": "Decimal"},
    )


@pytest.mark.parametrize("task", SENT)
def test_a_misfit_is_dead_at_once_with_its_path(task: str, dsn: str, db: psycopg.Connection) -> None:
    wrong = {"lines": [{"price": "1"}, {"price": None}]}
    db.execute("SELECT pgsched.enqueue(%s, %s)", [task, Jsonb({"order": wrong, "n": 3})])
    db.execute("SELECT pgsched.enqueue(%s, %s)", [task, Jsonb({"order": ORDER, "n": "3"})])
    worker = work(dsn, app, lambda: all_ended(db))
    assert worker.verdicts == {"dead": 2}
    errors = [error for (error,) in db.execute("SELECT error FROM pgsched.runs ORDER BY id").fetchall()]
    assert errors == [
        f"task {task}, parameter order.lines[1].price: expected Decimal, got null",
        f"task {task}, parameter n: expected int, got str '3'",
    ]
