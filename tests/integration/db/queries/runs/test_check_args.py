"""`pgsched.check_args` judges arguments in SQL as a worker would judge them, by the schema that the task registered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import psycopg
import pytest
from psycopg.types.json import Jsonb

from pgsched import App, TaskError
from pgsched.app.release import releases
from pgsched.db.queries.runs import tasks
from tests.support.logins import Logins

pytestmark = pytest.mark.pg14
CHECK = "SELECT fits, problem FROM pgsched.check_args(%s, %s)"


@dataclass
class Line:
    price: Decimal
    count: int = 1
    parts: list[Line] = field(default_factory=list)


app = App("shop")


@app.task(name="pay")
def pay(
    lines: list[Line],
    due: date | None = None,
    rates: dict[str, float] | None = None,
    colour: Literal["red", "blue"] = "red",
    note: Any = None,
) -> None: ...


@app.task(name="loose", extra="ignore")
def loose(n: int) -> None: ...


@pytest.fixture(autouse=True)
def registered(db: psycopg.Connection) -> None:
    assert tasks.register(db, "shop", releases(app.tasks.values())) is None


FITTING: list[dict[str, Any]] = [
    {"lines": []},
    {"lines": [{"price": "1.5", "count": 2}], "due": None, "rates": {"a": 1, "b": 2.5}, "colour": "blue"},
    {"lines": [{"price": "1", "parts": [{"price": "2", "parts": []}]}], "due": "2026-01-01", "note": {"x": [1]}},
]
MISFITS: list[tuple[Any, str]] = [
    ({}, "lines is missing"),
    ({"lines": None}, "lines: expected array, got null"),
    ({"lines": [{"price": "1"}, {"count": 1}]}, "lines[1].price is missing"),
    ({"lines": [{"price": "1", "count": "2"}]}, "lines[0].count: expected integer, got string"),
    ({"lines": [{"price": "1", "count": 2.5}]}, "lines[0].count: expected integer, got number"),
    ({"lines": [{"price": "1", "parts": [{"price": True}]}]}, "lines[0].parts[0].price: expected "),
    ({"lines": [], "due": 5}, "due: expected string, got integer"),
    ({"lines": [], "rates": {"a": "b"}}, 'rates["a"]: expected number, got string'),
    ({"lines": [], "colour": "green"}, "colour: expected one of "),
    ({"lines": [], "color": "red"}, "color: there is no such argument"),
]


@pytest.mark.parametrize("args", FITTING)
def test_arguments_that_a_worker_takes_fit(db: psycopg.Connection, args: dict[str, Any]) -> None:
    pay.prepare(args, None)
    assert db.execute(CHECK, ["pay", Jsonb(args)]).fetchone() == (True, None)


@pytest.mark.parametrize(("args", "problem"), MISFITS)
def test_arguments_that_a_worker_refuses_do_not_fit(db: psycopg.Connection, args: Any, problem: str) -> None:
    with pytest.raises(TaskError):
        pay.prepare(args, None)
    found = db.execute(CHECK, ["pay", Jsonb(args)]).fetchone()
    assert found is not None and found[0] is False
    assert found[1].startswith(problem)


@pytest.mark.parametrize("args", [[], [[]], [[{"price": "1"}], "2026-01-01"]], ids=["none", "one", "two"])
def test_arguments_by_position_are_not_judged(db: psycopg.Connection, args: list[Any]) -> None:
    """A schema has no order of parameters, so only the worker can tell."""
    assert db.execute(CHECK, ["pay", Jsonb(args)]).fetchone() == (None, "not checked: arguments by position")


def test_a_task_that_ignores_extra_arguments_takes_them(db: psycopg.Connection) -> None:
    assert db.execute(CHECK, ["loose", Jsonb({"n": 1, "m": 2})]).fetchone() == (True, None)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({}, 'not checked: no worker has registered the arguments of task "t"'),
        ({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}}, "not checked: minimum of n"),
        ({"$ref": "https://example.com/schema"}, "not checked: $ref of "),
        ({"$ref": "#/$defs/Missing", "$defs": {}}, "not checked: $ref of "),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, "not checked: "),
        ({"properties": 5, "required": "n", "anyOf": {}, "items": []}, None),
        ("text", "not checked: "),
    ],
)
def test_what_a_schema_says_beyond_the_known_words_is_not_judged(
    db: psycopg.Connection, schema: Any, problem: str | None
) -> None:
    db.execute("INSERT INTO pgsched.tasks (task, app, release, owner, schema) VALUES ('t', 'other', '1', 'x', %s)",
               [Jsonb(schema)])  # fmt: skip
    found = db.execute(CHECK, ["t", Jsonb({"n": 5})]).fetchone()
    assert found is not None and (found[0], found[1] is None) == (None if problem else True, problem is None)
    assert (found[1] or "").startswith(problem or "")


def test_a_misfit_is_found_beside_what_is_not_judged(db: psycopg.Connection) -> None:
    schema = {"type": "object", "minProperties": 1, "properties": {"n": {"type": "integer"}}}
    db.execute("INSERT INTO pgsched.tasks (task, app, release, owner, schema) VALUES ('t', 'other', '1', 'x', %s)",
               [Jsonb(schema)])  # fmt: skip
    assert db.execute(CHECK, ["t", Jsonb({"n": "x"})]).fetchone() == (False, "n: expected integer, got string")
    assert db.execute(CHECK, ["t", Jsonb({"n": 1})]).fetchone() == (None, "not checked: minProperties of ")


@pytest.mark.long
def test_alternatives_within_alternatives_are_given_up_in_time(db: psycopg.Connection) -> None:
    """Each level of the value doubles the work: a value with one wrong leaf is refused, or given up, within seconds."""
    pair = {"type": "object", "properties": {"left": {"$ref": "#/$defs/Any"}, "right": {"$ref": "#/$defs/Any"}}}
    either = [{"$ref": "#/$defs/Add"}, {"$ref": "#/$defs/Mul"}, {"type": "integer"}]
    schema = {"type": "object", "properties": {"sum": {"$ref": "#/$defs/Any"}},
              "$defs": {"Any": {"anyOf": either}, "Add": pair, "Mul": pair}}  # fmt: skip
    db.execute("UPDATE pgsched.tasks SET schema = %s WHERE task = 'loose'", [Jsonb(schema)])

    def tree(depth: int, leaf: Any) -> Any:
        return leaf if depth == 0 else {"left": tree(depth - 1, 1), "right": tree(depth - 1, leaf)}

    db.execute("SET statement_timeout = '60s'")
    assert db.execute(CHECK, ["loose", Jsonb({"sum": tree(8, 1)})]).fetchone() == (True, None)
    fits, problem = db.execute(CHECK, ["loose", Jsonb({"sum": tree(3, "x")})]).fetchone() or ("", "")
    assert fits is False and "expected integer, got" in problem
    deep = db.execute(CHECK, ["loose", Jsonb({"sum": tree(12, "x")})]).fetchone()
    assert deep == (None, "not checked: there is too much of it")


NUMBER = {"type": "integer"}
MANY = 60_000


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": NUMBER}, [1] * MANY),
        ({"type": "object", "additionalProperties": NUMBER}, {str(n): 1 for n in range(MANY)}),
        ({"type": "object", "properties": {"n": NUMBER}}, {str(n): 1 for n in range(MANY)}),
        ({"anyOf": [{"type": "object", "additionalProperties": {"type": "null"}}] * 20},
         {str(n): 1 for n in range(MANY // 10)}),
    ],
    ids=["items", "keys", "unnamed-keys", "keys-for-each-alternative"],
)  # fmt: skip
def test_large_arguments_are_given_up_without_more_work(db: psycopg.Connection, schema: Any, value: Any) -> None:
    db.execute("UPDATE pgsched.tasks SET schema = %s WHERE task = 'loose'", [Jsonb({"properties": {"n": schema}})])
    db.execute("SET track_functions = 'all'")
    with db.transaction():
        found = db.execute(CHECK, ["loose", Jsonb({"n": value})]).fetchone()
        calls = db.execute("SELECT pg_stat_get_xact_function_calls(oid) FROM pg_proc WHERE proname = 'json_misfit'")
        assert calls.fetchone() < (100,)
    assert found == (None, "not checked: there is too much of it")


@pytest.mark.long
def test_as_many_values_as_can_be_checked_are_checked(db: psycopg.Connection) -> None:
    schema = {"properties": {"n": {"type": "array", "items": NUMBER}}}
    db.execute("UPDATE pgsched.tasks SET schema = %s WHERE task = 'loose'", [Jsonb(schema)])
    assert db.execute(CHECK, ["loose", Jsonb({"n": [1] * 49_998})]).fetchone() == (True, None)
    assert db.execute(CHECK, ["loose", Jsonb({"n": [1] * 49_999})]).fetchone() == (
        None, "not checked: there is too much of it",
    )  # fmt: skip


def test_an_unknown_task_is_not_judged(db: psycopg.Connection) -> None:
    found = db.execute(CHECK, ["nothing", Jsonb({})]).fetchone()
    assert found == (None, 'not checked: no worker has registered the arguments of task "nothing"')


def test_a_producer_may_check_but_not_read_the_tasks(logins: Logins, db: psycopg.Connection) -> None:
    producer: Callable[..., Any] = logins.connect("alice").execute
    assert producer(CHECK, ["loose", Jsonb({"n": 1})]).fetchone() == (True, None)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        producer("SELECT * FROM pgsched.tasks")
