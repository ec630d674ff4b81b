"""Transactions of handlers: prove the claim in one, or write and settle together in one.

Invariant: a handler's own transaction is fenced as our own writes are. A handler that does not own the run any more
rolls back.

`assert_claim` takes the connection that the handler has, sync or async. A connection that commits by itself is refused,
because the claim would be held for no longer than the statement.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, Connection, pq
from psycopg.errors import ObjectNotInPrerequisiteState
from psycopg.rows import tuple_row

from pgsched.adapters import sqlalchemy
from pgsched.adapters.django import atomic_block, find_django, open_driver_connection
from pgsched.core import payload
from pgsched.db.connection.connect import BY_KEY
from pgsched.db.connection.handler_pool import idle
from pgsched.db.connection.sealed import SEARCH_PATH
from pgsched.db.queries.runs.claims import json_array, success_parameters
from pgsched.db.statements import sql
from pgsched.errors import ClaimLost, InputError
from pgsched.threads import run_in_thread

ASSERT = "SELECT pgsched.assert_claim(%s, %s)"
STRICTER = (
    "SELECT pg_catalog.current_setting('transaction_isolation') AS level"
    " WHERE pg_catalog.current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')"
)
ASSERT_TEXT = "SELECT pg_catalog.transaction_timestamp(), pgsched.assert_claim(:run_id, CAST(:token AS uuid))"
INTERRUPT_S = 2.0
LOST = ObjectNotInPrerequisiteState.sqlstate
# The settlement is the last statement of its transaction. It must find functions and operators in pg_catalog alone: the
# handler's search path may name schemas in which others can create objects. Afterwards the handler's settings are
# restored, because triggers may be deferred to the commit.
CHANGED = ("search_path", *BY_KEY)
SEAL = (
    "SELECT "
    + ", ".join(
        f"pg_catalog.set_config('pgsched.{name}', pg_catalog.current_setting('{name}'), true)" for name in CHANGED
    )
    + f"; SET LOCAL search_path = {SEARCH_PATH};"
    + "".join(f"SET LOCAL {name} = {value};" for name, value in BY_KEY.items())
)
UNSEAL = "SELECT " + ", ".join(f"set_config('{name}', current_setting('pgsched.{name}'), true)" for name in CHANGED)


def assert_claim(conn: Any, run_id: int, token: UUID) -> Any:
    """Assert the claim inside the caller's transaction; return an awaitable for an async connection.

    Raises ClaimLost, and InputError for a connection that cannot hold the claim.
    """
    if (django := find_django(conn)) is not None:
        conn = open_driver_connection(django)
    if isinstance(conn, Connection):
        check_transaction(conn)
        return raise_if_lost(lambda: conn.execute(ASSERT, [run_id, token]))
    if isinstance(conn, AsyncConnection):
        check_transaction(conn)
        return lost_if_async(lambda: conn.execute(ASSERT, [run_id, token]))
    values = {"run_id": run_id, "token": str(token)}
    awaited = sqlalchemy.is_async(conn)
    if awaited is None:
        kind = type(conn).__name__
        raise InputError(f"assert_claim: expected a psycopg, SQLAlchemy or Django connection, got {kind}", "conn")
    if awaited:
        return lost_if_async(lambda: sqlalchemy.ask_async(conn, ASSERT_TEXT, values))
    return raise_if_lost(lambda: sqlalchemy.ask(conn, ASSERT_TEXT, values))


def check_transaction(conn: Connection[Any] | AsyncConnection[Any]) -> None:
    """Raise InputError for a connection that commits each statement: it would hold the claim for no time."""
    if conn.autocommit and conn.info.transaction_status == pq.TransactionStatus.IDLE:
        raise InputError(
            "assert_claim: the connection commits by itself: open a transaction (`with conn.transaction():`, in Django "
            "`with transaction.atomic():`) and assert the claim inside of it",
            "conn",
        )


def raise_if_lost(ask: Callable[[], Any]) -> None:
    """Call `ask`. Raises ClaimLost where the database says that the claim is lost."""
    try:
        ask()
    except Exception as error:
        raise_lost(error)
        raise


async def lost_if_async(ask: Callable[[], Awaitable[Any]]) -> None:
    """Do what `raise_if_lost` does, for asyncio."""
    try:
        await ask()
    except Exception as error:
        raise_lost(error)
        raise


def raise_lost(error: Exception) -> None:
    """Raise ClaimLost where a driver's error says that the claim is lost."""
    cause = getattr(error, "orig", error)  # the driver's error that SQLAlchemy wraps
    if LOST in (getattr(cause, "sqlstate", None), getattr(cause, "pgcode", None)):
        raise ClaimLost(str(cause).splitlines()[0]) from error


@contextmanager
def handler_connection(conn: Any, dsn: Callable[[], str]) -> Iterator[Connection[Any]]:
    """Yield the caller's own connection, or one of ours where that is None, in a transaction that the block ends.

    Raises InputError as `check_idle`, and for a caller's connection whose isolation is too strict.
    """
    if conn is None:
        with idle(dsn()).lend() as mine, mine.transaction():
            yield mine
        return
    if (django := find_django(conn)) is not None:
        with atomic_block(django):
            driver = open_driver_connection(django)
            check_isolation(driver)
            yield driver
        return
    check_idle(conn, Connection, "with")
    with conn.transaction():
        check_isolation(conn)
        yield conn


@asynccontextmanager
async def opened_async(conn: Any, dsn: Callable[[], str]) -> AsyncIterator[AsyncConnection[Any]]:
    """Do what `handler_connection` does, for asyncio."""
    if conn is None:
        async with idle(dsn()).lend_async() as mine, mine.transaction():
            yield mine
        return
    check_idle(conn, AsyncConnection, "async with")
    async with conn.transaction():
        await check_isolation_async(conn)
        yield conn


def check_idle(conn: Any, kind: type[Any], how: str) -> None:
    """Check the type of the connection, and that no transaction is open on it. Raises InputError.

    The commit must be ours: only then do the handler's rows and the settlement commit together.
    """
    if not isinstance(conn, kind):
        raise InputError(f"transaction: `{how}` needs a psycopg {kind.__name__}, got {type(conn).__name__}", "conn")
    if conn.info.transaction_status != pq.TransactionStatus.IDLE:
        raise InputError(
            "transaction: the connection is in a transaction already: commit it first, or write there with "
            "run.assert_claim(conn)",
            "conn",
        )


def check_isolation(conn: Connection[Any]) -> None:
    """Check that a renewal of the run's lease cannot break the settlement. Raises InputError where it can."""
    refuse_isolation(conn.cursor(row_factory=tuple_row).execute(STRICTER).fetchone())


async def check_isolation_async(conn: AsyncConnection[Any]) -> None:
    """Do what `check_isolation` does, for asyncio."""
    refuse_isolation(await (await conn.cursor(row_factory=tuple_row).execute(STRICTER)).fetchone())


def refuse_isolation(stricter: tuple[str] | None) -> None:
    """Raise InputError where the isolation level is stricter than READ COMMITTED. `stricter`: the row of STRICTER."""
    if stricter is not None:
        raise InputError(
            f"transaction: the connection's isolation is {stricter[0]}, which the next renewal of the run's lease "
            "would break: use READ COMMITTED, or run.assert_claim(conn) in a transaction of your own",
            "conn",
        )


def settlement(run_id: int, token: UUID, value: Any) -> dict[str, str | None]:
    """Return the parameters of `settle_succeeded` for one run."""
    return success_parameters([run_id], [token], None if value is None else json_array([payload.encode(value)]))


def settle(conn: psycopg.Connection[Any], run_id: int, token: UUID, value: Any) -> None:
    """Record the success by the last statement of the open transaction. Raises ClaimLost."""
    conn.execute(SEAL)
    if conn.execute(sql("settle_succeeded"), settlement(run_id, token, value)).rowcount != 1:
        raise claim_lost(run_id)
    conn.execute(UNSEAL)


async def settle_async(conn: AsyncConnection[Any], run_id: int, token: UUID, value: Any) -> None:
    """Do what `settle` does, for asyncio."""
    await conn.execute(SEAL)
    if (await conn.execute(sql("settle_succeeded"), settlement(run_id, token, value))).rowcount != 1:
        raise claim_lost(run_id)
    await conn.execute(UNSEAL)


async def interrupt(conn: Connection[Any]) -> None:
    """Cancel the statement that a handler's thread waits for on its connection, if any. Raises nothing."""
    with contextlib.suppress(Exception):
        await run_in_thread(partial(conn.cancel_safe, timeout=INTERRUPT_S))


def claim_lost(run_id: int) -> ClaimLost:
    """Make the error that the claim of this run is lost."""
    return ClaimLost(f"claim of run {run_id} is lost: another attempt owns it or it has ended")
