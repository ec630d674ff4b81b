"""`after` at enqueue: the run waits for its parents, and wrong ones are refused before anything is made."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgsched import App, InputError, Item, PgschedError
from tests.support.db.enqueued import edges, runs


def test_a_run_is_enqueued_after_others(app: App, db: psycopg.Connection) -> None:
    @app.task
    def step(n: int) -> None: ...

    a, b = step.enqueue(n=1), step.enqueue(n=2)
    c = step.enqueue(n=3, after=[a], after_any=[b], on_failure="run_anyway")
    d = step.options(after=[c]).enqueue(n=4)
    assert edges(db) == [(c, a, "run_anyway", False), (c, b, "run_anyway", True), (d, c, "cancel", False)]
    assert [run[1] for run in runs(db)] == ["queued", "queued", "waiting", "waiting"]


def test_a_run_after_nothing_is_not_held_back(app: App, db: psycopg.Connection) -> None:
    @app.task
    def step() -> None: ...

    step.enqueue(after=[])
    assert [run[1] for run in runs(db)] == ["queued"]


def test_a_handler_that_has_a_parameter_named_after_gets_it(app: App, db: psycopg.Connection) -> None:
    @app.task
    def remind(after: int) -> None: ...

    remind.enqueue(after=3)
    assert runs(db)[0][2] == {"after": 3}


def test_a_run_of_a_task_that_takes_any_name_does_not_start_before_the_one_that_it_is_said_to_come_after(
    app: App, db: psycopg.Connection
) -> None:
    @app.task
    def step(**anything: Any) -> None: ...

    @app.task(batch=2)
    def many(items: list[Item]) -> None: ...

    first = step.enqueue(after=3)  # an argument like any other
    tasks: list[Any] = [step, many]
    for task in tasks:
        with pytest.raises(InputError, match=r"after: an argument of task .* which takes any; say options\(after="):
            task.enqueue(after=[first])
        task.options(after=[first]).enqueue(n=1)
    assert [run[1:3] for run in runs(db)] == [
        ("queued", {"after": 3}), ("waiting", {"n": 1}), ("waiting", {"n": 1}),
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
        step.enqueue(**options)
    assert str(raised.value) == message


def test_an_unknown_parent_is_refused_and_nothing_is_made(app: App, db: psycopg.Connection) -> None:
    @app.task
    def step() -> None: ...

    with pytest.raises(PgschedError, match="there is no run 4711 to wait for"):
        step.enqueue(after=[4711])
    assert runs(db) == []


def test_sql_enqueues_a_run_after_others(db: psycopg.Connection) -> None:
    row = db.execute("SELECT pgsched.enqueue('a'), pgsched.enqueue('b')").fetchone()
    assert row is not None
    child = db.execute("SELECT pgsched.enqueue('c', after => ARRAY[%s, %s]::bigint[], on_failure => 'wait')", row)
    found = child.fetchone()
    assert found is not None
    assert edges(db) == [(found[0], row[0], "wait", False), (found[0], row[1], "wait", False)]
