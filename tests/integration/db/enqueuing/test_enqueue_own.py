"""Enqueues on a connection of pgsched's own, and on connections that the caller uses for other work too.

pgsched's own connection works again after a refused enqueue, and is replaced if a statement or transaction was left
open on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from enum import Enum
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.app.options import OPTIONS
from pgsched.app.task import Task
from pgsched.db.connection.connect import connect as connect_ours
from pgsched.errors import PgschedError

PLANS = "SELECT count(*) FROM pg_prepared_statements"


class Queue(str, Enum):  # noqa: UP042 - str() of a member is not its text
    MAIL = "mail"


class Level(int, Enum):
    HIGH = 7


class Word(str, Enum):  # noqa: UP042
    REJECT = "reject"
    ACTIVE = "while_active"


@pytest.fixture
def greet(dsn: str) -> Iterator[Task[Any, Any]]:
    app = App("test", dsn=dsn)

    @app.task(name="greet")
    def greet(name: str) -> None: ...

    yield greet
    app.close()


def refuse(db: psycopg.Connection[Any]) -> None:
    """Make the database refuse a run whose argument is the name Mallory."""
    db.execute("ALTER TABLE pgsched.runs ADD CONSTRAINT no_mallory CHECK (args ->> 'name' <> 'Mallory')")


def names(db: psycopg.Connection[Any]) -> list[str]:
    return [row[0] for row in db.execute("SELECT args ->> 'name' FROM pgsched.runs ORDER BY id").fetchall()]


def test_an_enqueue_works_after_a_refused_enqueue_many(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    """After a rollback, psycopg drops every plan of the session if it has prepared one itself."""
    refuse(db)
    greet.enqueue("Ada")
    for _ in range(7):
        greet.enqueue_many([{"name": "Bob"}])
    with pytest.raises(PgschedError, match="no_mallory"):
        greet.enqueue_many([{"name": "Mallory"}])
    greet.enqueue("Cleo")
    assert names(db) == ["Ada", *["Bob"] * 7, "Cleo"]


def test_an_async_enqueue_works_after_a_refused_enqueue_many(
    greet: Task[Any, Any], db: psycopg.Connection[Any]
) -> None:
    refuse(db)

    async def main() -> None:
        await greet.enqueue_async("Ada")
        for _ in range(7):
            await greet.enqueue_many_async([{"name": "Bob"}])
        with pytest.raises(PgschedError, match="no_mallory"):
            await greet.enqueue_many_async([{"name": "Mallory"}])
        await greet.enqueue_async("Cleo")
        await greet.app.close_async()

    asyncio.run(main())
    assert names(db) == ["Ada", *["Bob"] * 7, "Cleo"]


def test_an_enqueue_works_after_a_refused_enqueue(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    refuse(db)
    greet.enqueue("Ada")
    with pytest.raises(PgschedError, match="no_mallory"):
        greet.enqueue("Mallory")
    greet.enqueue("Bob")
    assert names(db) == ["Ada", "Bob"]


def test_enum_options_are_stored_as_their_values(greet: Task[Any, Any], db: psycopg.Connection[Any]) -> None:
    for over in (None, db):
        greet.options(queue=Queue.MAIL, concurrency_key=Queue.MAIL, connection=over).enqueue("Ada")
        greet.options(queue=Queue.MAIL, priority=Level.HIGH, connection=over).enqueue_many([{"name": "Bob"}])
    found = db.execute("SELECT queue, coalesce(concurrency_key, priority::text) FROM pgsched.runs").fetchall()
    assert sorted(found) == [("mail", "7")] * 2 + [("mail", "mail")] * 2


def test_an_enum_word_becomes_a_plain_string() -> None:
    for name, word in (("on_conflict", Word.REJECT), ("unique_scope", Word.ACTIVE)):
        found = OPTIONS[name](name, word)
        assert (found, type(found)) == (word.value, str)


@pytest.mark.parametrize("busy", [True, False])
def test_a_connection_left_busy_or_in_a_transaction_is_replaced(
    greet: Task[Any, Any], db: psycopg.Connection[Any], busy: bool
) -> None:
    """A signal may leave a connection busy, or in a transaction that nothing would end."""
    greet.enqueue("Ada")
    left = greet.app.database.send(None, lambda mine: mine)
    if busy:
        left.pgconn.send_query(b"SELECT pg_sleep(0)")
    else:
        left.execute("BEGIN")
    greet.enqueue("Bob")
    assert names(db) == ["Ada", "Bob"]
    assert left.closed


@pytest.mark.parametrize("encoding", ["utf8", "latin1"])
def test_an_enqueue_leaves_a_callers_connection_as_it_is(
    greet: Task[Any, Any], db: psycopg.Connection[Any], dsn: str, encoding: str
) -> None:
    """The connection may have another encoding, and be in a pipeline."""
    with connect_ours(dsn, encoding=encoding) as conn:
        greet.enqueue("Zoë", connection=conn)
        with conn.pipeline():
            greet.enqueue("Noë", connection=conn)
        assert conn.execute(PLANS).fetchone() == (0,)
    assert names(db) == ["Zoë", "Noë"]
