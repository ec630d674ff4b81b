"""Many runs by one COPY: the same rows as one by one, and all of them or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from pgsched import App, InputError, TaskError
from pgsched.app.task import Task

pytestmark = pytest.mark.pg14

Connect = Callable[..., psycopg.Connection[Any]]
ODD = 'tab\t, newline\n, return\r, backslash \\, \\. and \\N, quote ", é, 😀'


@pytest.fixture
def greet(dsn: str) -> Iterator[Any]:
    app = App(dsn=dsn)

    @app.task(name="gre\\et", queue="mail", timeout=30)
    def greet(name: str, loud: bool = False) -> None: ...

    yield greet
    app.close()


def rows(db: psycopg.Connection[Any]) -> list[dict[str, Any]]:
    with db.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute("SELECT * FROM pgsched.runs ORDER BY id").fetchall()
    for row in found:
        for moving in ("id", "available_at", "created_at", "checked"):  # the last: who has judged the row
            del row[moving]
    return found


@pytest.mark.parametrize("options", [{}, {"priority": 0, "queue": "slow", "max_attempts": 7}, {"delay": 3600}])
def test_they_are_what_enqueue_makes(
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


def test_both_forms_take_any_iterable_in_pieces(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
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


def test_what_makes_the_calls_may_enqueue_on_the_same_connection(
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
def test_one_call_that_does_not_fit_makes_none_and_spoils_no_transaction(
    bad: Any, message: str, greet: Task[Any, Any], db: psycopg.Connection[Any], connect: Connect
) -> None:
    mine = connect(autocommit=False)
    greet.enqueue("before", connection=mine)
    with pytest.raises((TaskError, InputError), match=message):
        greet.enqueue_many([*[{"name": "Ada"}] * 900, bad], connection=mine)
    mine.commit()
    assert [row["args"]["name"] for row in rows(db)] == ["before"]


@pytest.mark.parametrize("commits", [True, False])
def test_they_commit_or_roll_back_with_the_callers_work(
    commits: bool, greet: Task[Any, Any], db: psycopg.Connection[Any], connect: Connect
) -> None:
    mine = connect(autocommit=False)
    greet.options(connection=mine).enqueue_many([["Ada"], ["Bob"]])
    assert rows(db) == []
    mine.commit() if commits else mine.rollback()
    assert len(rows(db)) == (2 if commits else 0)


def test_a_row_that_the_database_refuses_makes_none(dsn: str, db: psycopg.Connection[Any]) -> None:
    db.execute("ALTER TABLE pgsched.runs ADD CONSTRAINT odd CHECK (args ->> 'n' <> '7')")
    app = App(dsn=dsn)

    @app.task(name="t")
    def t(n: int) -> None: ...

    with pytest.raises(InputError, match="odd"):
        t.enqueue_many([n] for n in range(10))
    assert rows(db) == []
    assert t.enqueue_many([[1]]) == 1, "and the connection is as good as before"
    app.close()


@pytest.mark.parametrize("encoding", ["LATIN1", "UTF8"])
def test_they_are_what_enqueue_makes_whatever_the_connections_encoding(
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


def test_text_that_the_connections_encoding_lacks_makes_none(
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
    with pytest.raises(InputError, match=r"expected a psycopg.Connection, got a builtins.str"):
        greet.enqueue_many([["Ada"]], connection="postgresql://")
