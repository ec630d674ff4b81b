"""What assertions about enqueued runs compare, and what their failures show."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from typing import Any, get_type_hints
from uuid import UUID

import pytest

from pgsched import App, InputError, TaskError
from pgsched.testing import Enqueued, assert_enqueued, inline, record, refute_enqueued
from pgsched.testing.asserting import Columns

NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)
ID = UUID("0190a0b0-0000-7000-8000-000000000000")


@dataclass
class Line:
    price: int


@pytest.fixture
def order(app: App) -> Any:
    @app.task(name="order")
    def order(day: date, lines: list[Line], key: UUID | None = None, *, note: Any = None) -> None: ...

    return order


def failure(*args: Any, **kwargs: Any) -> list[str]:
    """Return the lines of a failed assertion."""
    with pytest.raises(AssertionError) as raised:
        assert_enqueued(*args, **kwargs)
    return str(raised.value).splitlines()


def test_typed_arguments_match_as_enqueue_takes_them_and_as_json(app: App, order: Any) -> None:
    day, lines = date(2026, 3, 28), [Line(3)]
    with record(app):
        order.enqueue(day, lines, ID, note=(1, 2))
        for args in (
            {"day": day, "lines": lines, "key": ID, "note": (1, 2)},
            {"day": "2026-03-28", "lines": [{"price": 3}], "key": str(ID), "note": [1, 2]},
            {"day": day},
        ):
            assert_enqueued(order, args=args)
        refute_enqueued(order, args={"day": date(2026, 3, 29)})
        refute_enqueued(order, args={"key": None})
        refute_enqueued(order, args=[day, lines])  # a list is the whole list
        order.enqueue(day, lines)
        assert_enqueued(order, args=[day, lines])


@pytest.mark.parametrize("check", [assert_enqueued, refute_enqueued])
@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"args": {"lins": 1}}, InputError, r"args: task order has no argument 'lins'; did you mean lines\?"),
        ({"args": {"day": 5}}, TaskError, "task order, parameter day: expected date"),
        ({"args": {"note": object()}}, TaskError, "task order, parameter 'note': "),
        ({"args": "day"}, InputError, "args: expected a mapping or a sequence, got str"),
        ({"args": [1, 2, 3, 4]}, TaskError, "task order: too many positional arguments"),
        ({"at": datetime(2026, 3, 28)}, InputError, "at: expected a datetime with a time zone"),
        ({"quue": "mail"}, InputError, r"quue: no such column of a run; known are .*; did you mean queue\?"),
    ],
)
def test_what_could_never_match_is_refused(
    check: Any, asked: dict[str, Any], error: type[Exception], message: str, app: App, order: Any
) -> None:
    with record(app), pytest.raises(error, match=message):
        check(order, **asked)


def test_any_name_is_an_argument_of_a_task_with_keywords(app: App) -> None:
    @app.task(name="open")
    def task(**more: int) -> None: ...

    with record(app):
        task.enqueue(n=1)
        assert_enqueued(task, args={"n": 1})
        refute_enqueued(task, args={"m": 1})


def test_a_failure_lists_the_nearest_run_first_and_says_how_each_differs(app: App) -> None:
    @app.task(name="welcome")
    def welcome(user: int, loud: bool = False) -> None: ...

    @app.task(name="other")
    def other() -> None: ...

    with record(app, now=NOON):
        other.enqueue()
        welcome.options(queue="slow", delay=60).enqueue(8)
        welcome.options(queue="mail", priority=1).enqueue(7, loud=True)
        lines = failure(welcome, args={"user": 7, "loud": False}, at=NOON, queue="mail", priority=1)
    assert lines == [
        "no run of welcome with args={'user': 7, 'loud': False}, at='2026-03-28T12:00:00+00:00', queue='mail',"
        " priority=1 is enqueued; enqueued are:",
        "  run 3: welcome {'user': 7, 'loud': True} queue=mail at=2026-03-28T12:00:00+00:00 queued;"
        " args['loud'] is True",
        "  run 2: welcome {'user': 8} queue=slow at=2026-03-28T12:01:00+00:00 scheduled; args['user'] is 8,"
        " args has no 'loud', at is 2026-03-28T12:01:00+00:00, queue is 'slow', priority is 5",
        "  run 1: other {} queue=default at=2026-03-28T12:00:00+00:00 queued",
    ]


def test_a_failure_shows_runs_that_have_ended(app: App, order: Any) -> None:
    with inline(app, now=NOON):
        order.enqueue(date(2026, 3, 28), [])
        assert failure(order) == [
            "no run of order is enqueued; nothing is",
            "ended, and therefore not counted (see recorder.runs):",
            "  run 1: order {'day': '2026-03-28', 'lines': []} queue=default at=2026-03-28T12:00:00+00:00 succeeded",
        ]


def test_a_failure_shows_runs_of_open_transactions(app: App, order: Any) -> None:
    import sqlalchemy as sa

    with record(app, now=NOON), sa.create_engine("sqlite://").connect() as conn:
        order.enqueue(date(2026, 3, 28), [], connection=conn)
        assert failure(order) == [
            "no run of order is enqueued; nothing is",
            "in a transaction that is open (look with connection=):",
            "  run 1: order {'day': '2026-03-28', 'lines': []} queue=default at=2026-03-28T12:00:00+00:00 queued",
        ]
        assert len(failure(order, args={"lines": [Line(1)]}, connection=conn)) == 2, "shown as enqueued"


def test_a_failure_shows_at_most_twenty_runs(app: App) -> None:
    @app.task(name="many")
    def many(n: int) -> None: ...

    with record(app):
        many.enqueue_many([n] for n in range(25))
        lines = failure(many, args={"n": 30})
    assert len(lines) == 22 and lines[-1] == "  and 5 more"


def test_the_typed_columns_are_the_fields_of_a_run() -> None:
    known = {field.name for field in fields(Enqueued)} - {"id", "task", "args", "at"}
    assert get_type_hints(Columns).keys() == known


def test_a_run_may_be_due_a_little_earlier_or_later(app: App, order: Any) -> None:
    with record(app, now=NOON):
        order.options(delay=60).enqueue(date(2026, 3, 28), [])
        assert_enqueued(order, at=NOON + timedelta(seconds=61))
        assert_enqueued(order, at=NOON, within=60)
        refute_enqueued(order, at=NOON, within=timedelta(seconds=59))
