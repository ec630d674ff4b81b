"""`after` at an enqueue: the run waits for its parents; wrong parents are refused before any run is made."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgsched import App, InputError, PgschedError, TaskError
from tests.support.db.enqueued import edges, runs


def test_a_run_is_enqueued_after_others(app: App, db: psycopg.Connection) -> None:
    @app.task
    def step(n: int) -> None: ...

    a, b = step.enqueue(n=1), step.enqueue(n=2)
    c = step.options(after=[a], after_any=[b], on_failure="run_anyway").enqueue(n=3)
    d = step.options(after=[c]).enqueue(n=4)
    assert edges(db) == [(c, a, "run_anyway", False), (c, b, "run_anyway", True), (d, c, "cancel", False)]
    assert [run[1] for run in runs(db)] == ["queued", "queued", "waiting", "waiting"]


def test_a_run_with_an_empty_after_is_not_held_back(app: App, db: psycopg.Connection) -> None:
    @app.task
    def step() -> None: ...

    step.options(after=[]).enqueue()
    assert [run[1] for run in runs(db)] == ["queued"]


def test_after_is_an_argument_like_any_other(app: App, db: psycopg.Connection) -> None:
    @app.task
    def remind(after: int) -> None: ...

    @app.task
    def step(**anything: Any) -> None: ...

    @app.task
    def load() -> None: ...

    remind.enqueue(after=3)
    step.options(after=[step.enqueue(after=4)]).enqueue(n=1)
    with pytest.raises(TaskError, match=r"'after'; .*; as an option of the run: task.options\(after=...\)"):
        load.enqueue(after=[1])
    assert [run[1:3] for run in runs(db)] == [
        ("queued", {"after": 3}), ("queued", {"after": 4}), ("waiting", {"n": 1}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"after": 7}, "after: expected a list of runs or of their ids, got int"),
        ({"after": ["x"]}, "after: 'x' is no run's id"),
        ({"after": [True]}, "after: True is no run's id"),
        ({"after": [1], "on_failure": "die"}, 'on_failure: "die" is not one of cancel, run_anyway, wait'),
    ],
)
def test_wrong_parents_are_refused(app: App, options: dict[str, Any], message: str) -> None:
    @app.task
    def step() -> None: ...

    with pytest.raises(InputError) as raised:
        step.options(**options).enqueue()
    assert str(raised.value) == message


def test_an_unknown_parent_is_refused_and_nothing_is_made(app: App, db: psycopg.Connection) -> None:
    @app.task
    def step() -> None: ...

    with pytest.raises(PgschedError, match="there is no run 4711 to wait for"):
        step.options(after=[4711]).enqueue()
    assert runs(db) == []


def test_sql_enqueues_a_run_after_others(db: psycopg.Connection) -> None:
    row = db.execute("SELECT pgsched.enqueue('a'), pgsched.enqueue('b')").fetchone()
    assert row is not None
    child = db.execute("SELECT pgsched.enqueue('c', after => ARRAY[%s, %s]::bigint[], on_failure => 'wait')", row)
    found = child.fetchone()
    assert found is not None
    assert edges(db) == [(found[0], row[0], "wait", False), (found[0], row[1], "wait", False)]
