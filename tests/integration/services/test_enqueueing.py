"""Enqueueing by the name of a task: the registered schema decides about the arguments; unknown tasks are noted."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.app import release
from pgsched.app.options import Options
from pgsched.app.release import releases
from pgsched.core.model import RunId
from pgsched.db.queries.runs import tasks
from pgsched.errors import AlreadyEnqueued, InputError, QueueFull
from pgsched.services.runs.enqueueing import enqueue_by_name, note_unknown_task

app = App("shop")


@app.task(name="pay")
def pay(amount: int, to: str = "me") -> None: ...


@app.task(name="invoice", unique_key="invoice {customer}/{month}", on_conflict="replace")
def invoice(customer: str, month: int = 5, note: str = "") -> None: ...


@pytest.fixture(autouse=True)
def registered(db: psycopg.Connection[Any]) -> None:
    tasks.register(db, "shop", releases(app.tasks.values()))


def test_a_run_is_made_with_its_options(db: psycopg.Connection[Any]) -> None:
    run = enqueue_by_name(db, "pay", {"amount": 7}, Options(queue="money", priority=1, unique_key="k"))
    found = db.execute("SELECT id, task, args, queue, priority, unique_key FROM pgsched.runs").fetchall()
    assert found == [(run, "pay", {"amount": 7}, "money", 1, "k")] and run.created
    again = enqueue_by_name(db, "pay", {"amount": 8}, Options(unique_key="k"))
    assert (again, again.how) == (run, "existing")
    with pytest.raises(AlreadyEnqueued):
        enqueue_by_name(db, "pay", {"amount": 8}, Options(unique_key="k", on_conflict="reject"))


def test_a_run_waits_for_room_in_a_full_queue(db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    db.execute("INSERT INTO pgsched.queues (name, max_depth) VALUES ('default', 1)")
    first = enqueue_by_name(db, "pay", {"amount": 7}, Options())
    with pytest.raises(QueueFull):
        enqueue_by_name(db, "pay", {"amount": 8}, Options())
    monkeypatch.setattr(time, "sleep", lambda _: db.execute("SELECT pgsched.cancel(%s)", [first]))
    assert enqueue_by_name(db, "pay", {"amount": 8}, Options(wait_for_room=timedelta(minutes=1))).created


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"amount": "7"}, "args: amount: expected integer, got string: task pay does not take them"),
        ({}, "args: amount is missing"),
        ({"amount": 7, "too": "me"}, "args: too: there is no such argument"),
        ("7", "args: expected an object or an array, got str"),
        ({"amount": float("nan")}, "args: is not JSON"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(db: psycopg.Connection[Any], args: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        enqueue_by_name(db, "pay", args, Options())
    assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (0,)


def test_a_problem_of_all_arguments_names_them_once(db: psycopg.Connection[Any]) -> None:
    db.execute("UPDATE pgsched.tasks SET schema = 'false' WHERE task = 'pay'")
    with pytest.raises(InputError, match=r"^args: no value is allowed: task pay does not take them$") as caught:
        enqueue_by_name(db, "pay", {}, Options())
    assert caught.value.field == "args"


def test_an_unknown_task_is_taken_and_noted(db: psycopg.Connection[Any]) -> None:
    assert enqueue_by_name(db, "pya", {"anything": 1}, Options()).created
    assert (note_unknown_task(db, "pya") or "").startswith("no live worker offers and no job has task pya")


Enqueue = Callable[..., RunId]


def by_service(db: psycopg.Connection[Any], task: str, args: Any, **options: Any) -> RunId:
    return enqueue_by_name(db, task, args, Options(**options))


def by_app(db: psycopg.Connection[Any], task: str, args: Any, **options: Any) -> RunId:
    return App("other", dsn=db.info.dsn).enqueue(task, args, connection=db, **options)


@pytest.mark.parametrize("enqueue", [by_service, by_app], ids=["service", "app"])
def test_the_keys_that_the_task_declares_hold(db: psycopg.Connection[Any], enqueue: Enqueue) -> None:
    first = enqueue(db, "invoice", {"customer": "ann"})
    assert first.created
    again = enqueue(db, "invoice", {"customer": "ann", "month": 5, "note": "new"})
    assert (again, again.how) == (first, "replaced")
    assert enqueue(db, "invoice", {"customer": "bob"}).created
    same = db.execute("""SELECT pgsched.enqueue('invoice', '{"customer": "ann"}')""").fetchone()
    assert same == (first,)
    assert invoice.enqueue("ann", connection=db) == first


@pytest.mark.parametrize("enqueue", [by_service, by_app], ids=["service", "app"])
def test_a_key_by_arguments_takes_the_defaults_of_the_task(db: psycopg.Connection[Any], enqueue: Enqueue) -> None:
    first = enqueue(db, "pay", {"amount": 7}, unique_by=True)
    assert enqueue(db, "pay", {"amount": 7, "to": "me"}, unique_by=True).how == "existing"
    assert pay.options(unique_by=True, connection=db).enqueue(7) == first


@pytest.mark.parametrize("enqueue", [by_service, by_app], ids=["service", "app"])
def test_a_template_is_no_key_of_a_call(db: psycopg.Connection[Any], enqueue: Enqueue) -> None:
    """It would be the same key for each amount."""
    with pytest.raises(InputError, match=r"unique_key: .* holds \{amount\}"):
        enqueue(db, "pay", {"amount": 7}, unique_key="amount {amount}")


def test_a_task_with_a_long_schema_has_the_same_keys_everywhere(
    db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "LONGEST", 200)
    big = App("big")

    @big.task(name="long", unique_by=True)
    def long(a: int, b: int = 2, c: int | None = None, d: list[str] | None = None, e: float = 0.5) -> None: ...

    (registered,) = releases(big.tasks.values())
    assert "required" not in registered.schema
    tasks.register(db, "big", [registered])
    first = long.enqueue(1, connection=db)
    assert enqueue_by_name(db, "long", {"a": 1}, Options()) == first
    assert tasks.find_misfit(db, "long", '{"z": 1}') is None, "it is not known what fits"
