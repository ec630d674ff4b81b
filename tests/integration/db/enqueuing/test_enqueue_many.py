"""`enqueue_many` makes the same rows as single enqueues, by one COPY: all of them or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from pgsched import App, InputError, TaskError
from pgsched.app.task import Task
from tests.support.db.engines import url
from tests.support.db.setting import Aside, wait_until_waits

pytestmark = pytest.mark.pg14

Connect = Callable[..., psycopg.Connection[Any]]
ODD = 'tab\t, newline\n, return\r, backslash \\, \\. and \\N, quote ", é, 😀'


@pytest.fixture
def greet(dsn: str) -> Iterator[Any]:
    app = App("test", dsn=dsn)

    @app.task(name="gre\\et", queue="mail", timeout=30)
    def greet(name: str, loud: bool = False) -> None: ...

    yield greet
    app.close()


def rows(db: psycopg.Connection[Any]) -> list[dict[str, Any]]:
    with db.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute("SELECT * FROM pgsched.runs ORDER BY id").fetchall()
    for row in found:
        for moving in ("id", "available_at", "created_at", "checked"):  # `checked`: by the statement or the trigger
            del row[moving]
    return found


@pytest.mark.parametrize("options", [{}, {"priority": 0, "queue": "slow", "max_attempts": 7}, {"delay": 3600}])
def test_enqueue_many_makes_the_same_rows_as_enqueue(
    options: dict[str, Any], greet: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    for name in ("Ada", ODD):
        greet.options(**options).enqueue(name, loud=True)
    assert greet.options(**options).enqueue_many([{"name": "Ada", "loud": True}, (ODD, True)]) == 2
    made = rows(db)
    assert made[:2] == made[2:]
    assert made[1]["args"]["name"] == ODD


def test_a_delay_counts_from_now_on_the_databases_clock(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    greet.options(delay=timedelta(hours=1)).enqueue_many([["Ada"]])
    row = db.execute("SELECT state, available_at - created_at FROM pgsched.runs").fetchone()
    assert row is not None and row[0] == "scheduled"
    assert timedelta(minutes=59) < row[1] < timedelta(minutes=61)


def test_sync_and_async_forms_take_any_iterable_in_pieces(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    async def main() -> int:
        try:
            return await greet.enqueue_many_async((f"n{n}",) for n in range(1234))
        finally:
            await greet.app.close_async()

    assert asyncio.run(main()) == 1234
    assert greet.enqueue_many((f"n{n}",) for n in range(1234)) == 1234
    distinct = db.execute("SELECT count(*), count(DISTINCT id), count(DISTINCT args) FROM pgsched.runs").fetchone()
    assert distinct == (2468, 2468, 1234)
    assert greet.enqueue_many([]) == 0


def test_a_generator_of_calls_may_enqueue_on_the_same_connection(
    greet: Task[Any, Any], db: psycopg.Connection[Any], connect: Connect
) -> None:
    mine = connect(autocommit=False)

    def calls() -> Iterator[tuple[str]]:
        for n in range(3):
            assert mine.info.transaction_status != TransactionStatus.ACTIVE, "it would wait for itself for ever"
            yield (f"after {greet.enqueue(str(n), connection=mine)}",)

    assert greet.enqueue_many(calls(), connection=mine) == 3
    mine.commit()
    assert len(rows(db)) == 6


@pytest.mark.parametrize(
    ("bad", "message"),
    [({"nam": "x"}, "task gre"), ({"name": 3}, "expected str, got int 3"), ("Ada", "calls: number 900 is of type str")],
)
def test_one_bad_call_makes_no_run_and_spoils_no_transaction(
    bad: Any, message: str, greet: Task[Any, Any], db: psycopg.Connection[Any], connect: Connect
) -> None:
    mine = connect(autocommit=False)
    greet.enqueue("before", connection=mine)
    with pytest.raises((TaskError, InputError), match=message):
        greet.enqueue_many([*[{"name": "Ada"}] * 900, bad], connection=mine)
    mine.commit()
    assert [row["args"]["name"] for row in rows(db)] == ["before"]


@pytest.mark.parametrize("commits", [True, False])
def test_the_runs_commit_or_roll_back_with_the_callers_work(
    commits: bool, greet: Task[Any, Any], db: psycopg.Connection[Any], connect: Connect
) -> None:
    mine = connect(autocommit=False)
    greet.options(connection=mine).enqueue_many([["Ada"], ["Bob"]])
    assert rows(db) == []
    mine.commit() if commits else mine.rollback()
    assert len(rows(db)) == (2 if commits else 0)


def test_one_row_that_the_database_refuses_makes_no_run(dsn: str, db: psycopg.Connection[Any]) -> None:
    db.execute("ALTER TABLE pgsched.runs ADD CONSTRAINT odd CHECK (args ->> 'n' <> '7')")
    app = App("test", dsn=dsn)

    @app.task(name="t")
    def t(n: int) -> None: ...

    with pytest.raises(InputError, match="odd"):
        t.enqueue_many([n] for n in range(10))
    assert rows(db) == []
    assert t.enqueue_many([[1]]) == 1, "and the connection is as good as before"
    app.close()


@pytest.mark.parametrize("encoding", ["LATIN1", "UTF8"])
def test_enqueue_many_works_with_any_encoding_of_the_connection(
    encoding: str, greet: Task[Any, Any], db: psycopg.Connection[Any], connect: Connect, dsn: str
) -> None:
    mine = connect()
    mine.execute(f"SET client_encoding = '{encoding}'")
    greet.enqueue("é\\", connection=mine)
    greet.enqueue_many([["é\\"]], connection=mine)

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other:
            await other.execute(f"SET client_encoding = '{encoding}'")
            await greet.enqueue_many_async([["é\\"]], connection=other)

    asyncio.run(main())
    assert [row["args"]["name"] for row in rows(db)] == ["é\\"] * 3


def test_text_that_the_connections_encoding_lacks_makes_no_run(
    greet: Task[Any, Any], db: psycopg.Connection[Any], connect: Connect
) -> None:
    mine = connect()
    mine.execute("SET client_encoding = 'LATIN1'")
    with pytest.raises(UnicodeEncodeError):
        greet.enqueue_many([["é"], ["😀"]], connection=mine)
    assert rows(db) == []
    assert greet.enqueue_many([["é"]], connection=mine) == 1, "and the connection is as good as before"


def test_a_unique_key_for_many_is_refused(greet: Task[Any, Any]) -> None:
    with pytest.raises(InputError, match=r"unique_key: names one run; enqueue_many makes many"):
        greet.options(unique_key="k").enqueue_many([["Ada"]])


def test_a_connection_of_the_wrong_form_is_refused(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    with pytest.raises(InputError, match=r"expected a psycopg.AsyncConnection, got a psycopg.Connection"):
        asyncio.run(greet.enqueue_many_async([["Ada"]], connection=db))
    with pytest.raises(InputError, match=r"expected a connection, or an alias of Django's DATABASES, got a text"):
        greet.enqueue_many([["Ada"]], connection="postgresql://")


def test_each_of_many_calls_may_have_an_idempotency_key(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    """A list of requests may be sent again: what was made stays, and what is new is made."""
    first = greet.options(idempotency_key="b").enqueue("Bob")
    kept = greet.options(idempotency_retention=timedelta(days=9), priority=1)
    calls: list[Any] = [["Ada"], {"name": "Bob"}, ["Cy"]]
    keys = ["a", "b", "c"]
    ids = kept.enqueue_many(calls, idempotency_keys=(key for key in keys), return_ids=True)
    assert [run.how for run in ids] == ["created", "repeated", "created"] and ids[1] == first
    assert kept.enqueue_many(calls, idempotency_keys=keys) == 0
    more = asyncio.run(kept.enqueue_many_async([*calls, ["Di"]], idempotency_keys=[*keys, "d"], return_ids=True))
    assert more[:3] == ids and more[3].created
    assert asyncio.run(greet.enqueue_many_async([["Eve"], ["Eve"]], idempotency_keys=["e", "e"])) == 1
    found = db.execute("SELECT idempotency_key, args ->> 'name', priority FROM pgsched.runs ORDER BY 1").fetchall()
    assert found == [("a", "Ada", 1), ("b", "Bob", 5), ("c", "Cy", 1), ("d", "Di", 1), ("e", "Eve", 5)]
    kept_for = "SELECT expires_at - created_at > '8 days' FROM pgsched.kept_keys WHERE key = 'c'"
    assert db.execute(kept_for).fetchone() == (True,)


def test_the_keys_of_a_mapping_keep_their_order(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    calls = {"b": ["Bob"], "a": ["Ada"]}
    assert greet.enqueue_many(calls.values(), idempotency_keys=calls.keys()) == 2
    found = db.execute("SELECT idempotency_key, args ->> 'name' FROM pgsched.runs ORDER BY id").fetchall()
    assert found == [("b", "Bob"), ("a", "Ada")]


def test_calls_without_an_order_take_no_keys(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    with pytest.raises(InputError, match="calls: expected a list of calls, got set: a set has no order"):
        greet.enqueue_many({("Ada",), ("Bob",)}, idempotency_keys=["a", "b"])
    assert greet.enqueue_many({("Ada",), ("Bob",)}) == 2


@pytest.mark.long
def test_keys_of_many_calls_keep_their_places_over_several_pages(
    greet: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    keys = [f"key {n}" for n in range(1201)]
    assert greet.enqueue_many(([f"name {n}"] for n in range(1201)), idempotency_keys=keys) == 1201
    apart = "SELECT count(*) FROM pgsched.runs WHERE substr(idempotency_key, 5) <> substr(args ->> 'name', 6)"
    assert db.execute(apart).fetchone() == (0,)


@pytest.mark.parametrize("form", ["sync", "asyncio", pytest.param("other driver", marks=pytest.mark.packages)])
def test_callers_with_the_same_keys_in_other_orders_wait_for_each_other(
    greet: Task[Any, Any], dsn: str, db: psycopg.Connection[Any], connect: Connect, form: str
) -> None:
    calls, keys = [[f"name {n}"] for n in range(600)], [f"key {n:03}" for n in reversed(range(600))]

    def make() -> Any:
        if form == "sync":
            return greet.enqueue_many(calls, idempotency_keys=keys, return_ids=True)
        if form == "asyncio":
            return asyncio.run(greet.enqueue_many_async(calls, idempotency_keys=keys, return_ids=True))
        engine = sa.create_engine(url("psycopg2", dsn), poolclass=sa.NullPool)
        with engine.begin() as mine:
            return greet.enqueue_many(calls, idempotency_keys=keys, return_ids=True, connection=mine)

    other = connect(autocommit=False)
    first = greet.options(idempotency_key="key 000", connection=other).enqueue("x")
    made = Aside(make)
    wait_until_waits(db)
    last = greet.options(idempotency_key="key 599", connection=other).enqueue("x")  # no deadlock
    assert first.created and last.created
    other.commit()
    found = made.result()
    assert [run for run in found if run.how == "repeated"] == [last, first]
    new = [run for run in found if run.how == "created"]
    assert len(new) == 598 and new == sorted(new), "the runs are made in the order of the calls"


def test_keys_of_many_calls_hold_in_the_callers_transaction(greet: Task[Any, Any], connect: Connect) -> None:
    mine = connect(autocommit=False)
    assert greet.enqueue_many([["Ada"]], idempotency_keys=["a"], connection=mine) == 1
    mine.rollback()
    assert greet.enqueue_many([["Ada"]], idempotency_keys=["a"]) == 1


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["a"], "idempotency_keys: 1 key for 2 calls: give one for each call"),
        (["a", "b", "c"], "idempotency_keys: 3 keys for 2 calls: give one for each call"),
        ("ab", "idempotency_keys: expected a list of texts, one for each call, got str"),
        (7, "idempotency_keys: expected a list of texts, one for each call, got int"),
        ({"a", "b"}, "idempotency_keys: expected a list of texts, one for each call, got set"),
        (frozenset("ab"), "idempotency_keys: expected a list of texts, one for each call, got frozenset"),
        ({"a": 1, "b": 2}, "idempotency_keys: expected a list of texts, one for each call, got dict"),
        (["a", ""], r"idempotency_keys\[1\]: must not be empty"),
        (["a", None], r"idempotency_keys\[1\]: expected text, got None"),
    ],
)
def test_wrong_keys_of_many_calls_are_refused(
    greet: Task[Any, Any], db: psycopg.Connection[Any], keys: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        greet.enqueue_many([["Ada"], ["Bob"]], idempotency_keys=keys)
    with pytest.raises(InputError, match=r"idempotency_key: names one run.*give idempotency_keys, one for each call"):
        greet.options(idempotency_key="a").enqueue_many([["Ada"]])
    assert rows(db) == []
