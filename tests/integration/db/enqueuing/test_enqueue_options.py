"""Options of an enqueue in Python and in SQL: tags, limits, refusals, and encodings."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from pgsched import App, InputError, QueueFull
from pgsched.app.task import Task
from tests.support.db.setting import row_of

Connect = Callable[..., psycopg.Connection[Any]]
LATER = datetime(2100, 1, 1, 10, 15, tzinfo=UTC)


# ---- the SQL function


def test_the_sql_function_takes_every_option(db: psycopg.Connection[Any]) -> None:
    call = (
        "SELECT * FROM pgsched.enqueue_result(task => 't', args => '{\"a\": 1}', queue => 'q', priority => 2,"
        " at => '2100-01-01Z', unique_key => 'u', unique_scope => 'bucket(1 day)', on_conflict => 'keep_time',"
        " idempotency_key => 'i', idempotency_retention => '1 hour', timeout => '5s', tags => '{a,b}',"
        " max_attempts => 7)"
    )
    assert [db.execute(call).fetchone(), db.execute(call).fetchone()] == [(1, "created"), (1, "repeated")]
    run = row_of(db, 1)
    assert [run[name] for name in ("queue", "priority", "state", "tags", "max_attempts", "timeout")] == [
        "q", 2, "scheduled", ["a", "b"], 7, "00:00:05"]  # fmt: skip


def test_reject_in_sql_is_a_unique_violation(db: psycopg.Connection[Any]) -> None:
    call = "SELECT pgsched.enqueue('t', unique_key => 'k', on_conflict => 'reject')"
    db.execute(call)
    with pytest.raises(psycopg.errors.UniqueViolation, match='unique_key: run 1 has "k" already'):
        db.execute(call)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("unique_key => ''", "unique_key: must not be empty"),
        ("unique_key => repeat('x', 501)", "unique_key: 501 characters, at most 500 are allowed"),
        ("idempotency_key => ' k'", "idempotency_key: must not begin or end with a space"),
        ("idempotency_key => 'k', idempotency_retention => '0'", "idempotency_retention: 00:00:00 is less than"),
        ("on_conflict => 'mix'", 'on_conflict: "mix" is not one of return, reject, replace, keep_time, merge'),
        ("tags => ARRAY['']", "tags: must not be empty"),
        ("tags => array_fill('x'::text, ARRAY[101])", "tags: 101 tags, at most 100 are allowed"),
        ("unique_key => 'k', at => 'infinity'", "at: infinity is not an instant"),
    ],
)
def test_the_sql_function_refuses_bad_options(db: psycopg.Connection[Any], options: str, message: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=message):
        db.execute(f"SELECT pgsched.enqueue('t', {options})")


# ---- tags


def test_tags_are_kept_with_the_run(app: App, db: psycopg.Connection[Any]) -> None:
    task = app.task(name="t", tags=["eu"])(lambda: None)
    rows = [row_of(db, task.enqueue()), row_of(db, task.options(tags=("us", 'odd "\\,{}', "NULL")).enqueue())]
    assert [row["tags"] for row in rows] == [["eu"], ["us", 'odd "\\,{}', "NULL"]]
    task.options(tags=["us", 'odd "\\,{}', "NULL"]).enqueue_many([[]])
    assert row_of(db, 3)["tags"] == rows[1]["tags"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tags": "eu"}, "tags: expected a list of text"),
        ({"tags": [""]}, "tags: must not be empty"),
        ({"tags": ["x"] * 101}, "tags: 101 tags, at most 100 are allowed"),
        ({"on_conflict": "mix"}, 'on_conflict: "mix" is not one of return, reject, replace, keep_time, merge'),
        ({"idempotency_retention": 0}, "idempotency_retention: 0 s is out of range"),
        ({"idempotency_key": "x" * 501}, "idempotency_key: 501 characters, at most 500"),
    ],
)
def test_bad_options_are_refused_before_the_enqueue(greet: Task[Any, Any], options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        greet.options(**options)


def test_an_idempotency_key_for_many_is_refused(greet: Task[Any, Any]) -> None:
    with pytest.raises(InputError, match="idempotency_key: names one run; enqueue_many makes many"):
        greet.options(idempotency_key="k").enqueue_many([["Ada"]])


# ---- limits


def test_a_full_queue_is_an_error_of_its_own(
    app: App, greet: Task[Any, Any], db: psycopg.Connection[Any], connect: Connect
) -> None:
    db.execute("INSERT INTO pgsched.queues (name, max_depth, on_full) VALUES ('default', 1, 'reject')")
    greet.enqueue("Ada")
    with pytest.raises(QueueFull, match="queue: default is full") as raised:
        greet.enqueue("Bob")
    assert raised.value.exit_code == 12
    with pytest.raises(QueueFull):
        greet.enqueue("Bob", connection=connect())


def test_a_refusal_on_the_callers_connection_is_a_pgsched_error(
    greet: Task[Any, Any], app: App, connect: Connect
) -> None:
    mine = connect(autocommit=False)
    greet.options(idempotency_key="k", connection=mine).enqueue("Ada")
    other = app.task(name="other")(lambda: None)
    with pytest.raises(InputError, match="idempotency_key"):
        other.options(idempotency_key="k", connection=mine).enqueue()
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        greet.enqueue("Ada", connection=mine)


def test_a_run_that_only_limits_hold_waits_for_its_new_time(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    db.execute("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('default', 1)")
    first = greet.options(unique_key="k").enqueue("Ada")
    assert row_of(db, first)["state"] == "waiting"
    greet.options(unique_key="k", on_conflict="replace", at=LATER).enqueue("Bob")
    run = row_of(db, first)
    assert (run["state"], run["ready_at"], run["args"]) == ("scheduled", None, {"name": "Bob"})
    db.execute("SELECT pgsched.cancel(%s)", [first])
    second = greet.options(unique_key="k").enqueue("Ada")
    greet.options(unique_key="k", on_conflict="replace").enqueue("Eve")
    run = row_of(db, second)
    assert (run["state"], run["args"]) == ("waiting", {"name": "Eve"}) and run["ready_at"] is not None


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "UTF8"])
def test_how_is_returned_whatever_the_connections_encoding(
    encoding: str, greet: Task[Any, Any], connect: Connect
) -> None:
    mine = connect(client_encoding=encoding, row_factory=psycopg.rows.namedtuple_row)
    unique = greet.options(unique_key="k", connection=mine)
    assert [greet.enqueue("a", connection=mine).how, unique.enqueue("a").how, unique.enqueue("a").how] == [
        "created", "created", "existing"]  # fmt: skip
    later = greet.options(at=LATER, timeout=5, tags=["a"], connection=mine)
    assert later.enqueue_many([["a"]]) == 1
