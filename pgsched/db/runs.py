"""The rule: a run is enqueued by one statement, on the caller's connection and in the caller's transaction.

The two forms share the statement and differ in the line that sends it.
"""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.rows import tuple_row

from pgsched.db.statements import sql
from pgsched.errors import InputError, PgschedError

# Every repetition has met one more run with this key that was made and finished in between.
REPETITIONS = 20


def enqueue(conn: Connection[Any], **values: Any) -> int:
    """Make a run; returns its id, or that of the unfinished run with the same unique_key."""
    if not isinstance(conn, Connection):
        raise wrong_connection(conn, "psycopg.Connection")
    # A cursor of our own: the caller's connection may make cursors with another row factory.
    with Cursor(conn, row_factory=tuple_row) as cursor:
        for _ in range(REPETITIONS):
            row = cursor.execute(sql("enqueue"), values).fetchone()
            if row is not None:
                return int(row[0])
    raise contested(values)


async def enqueue_async(conn: AsyncConnection[Any], **values: Any) -> int:
    """The asyncio form of `enqueue`."""
    if not isinstance(conn, AsyncConnection):
        raise wrong_connection(conn, "psycopg.AsyncConnection")
    async with AsyncCursor(conn, row_factory=tuple_row) as cursor:
        for _ in range(REPETITIONS):
            row = await (await cursor.execute(sql("enqueue"), values)).fetchone()
            if row is not None:
                return int(row[0])
    raise contested(values)


def wrong_connection(conn: object, expected: str) -> InputError:
    """The caller's connection is of another library, or of the other form of this one."""
    kind = f"{type(conn).__module__.partition('.')[0]}.{type(conn).__name__}"
    hint = "; enqueue() takes a Connection, enqueue_async() an AsyncConnection"
    return InputError(f"connection: expected a {expected}, got a {kind}{hint}", "connection")


def contested(values: dict[str, Any]) -> PgschedError:
    """Other clients kept making and ending runs with the same key."""
    return PgschedError(f"unique_key {values.get('unique_key')!r}: other clients hold it again and again; try later")
