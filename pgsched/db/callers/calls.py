"""Run a use case on the caller's own connection, in the caller's transaction.

Invariant: what a use case sends finds functions and operators in pg_catalog alone, and reads and writes values in our
styles, whatever the caller's session has set. Afterwards the caller's settings are as before. A use case that fails
leaves the caller's transaction usable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, TypeVar

from psycopg import AsyncConnection, Connection, pq

from pgsched.adapters import sqlalchemy
from pgsched.adapters.django import find_django, noting_failures, open_driver_connection
from pgsched.db.callers.foreign import (
    Bridge,
    ForeignConnection,
    send_by_async_sqlalchemy,
    send_by_psycopg_async,
    send_by_sqlalchemy,
)
from pgsched.db.callers.loaders import our_loaders
from pgsched.db.connection import sealed
from pgsched.db.connection.connect import BY_INDEX
from pgsched.errors import InputError
from pgsched.threads import run_in_thread

T = TypeVar("T")
# Statements of use cases set those of BY_INDEX for themselves: they are restored, too.
SEALED = {"search_path": sealed.SEARCH_PATH, **sealed.STYLES, "extra_float_digits": "1", "array_nulls": "on"}
KEPT = (*SEALED, *BY_INDEX)
BEGIN = "SELECT 1"  # the driver sends BEGIN before it
ASYNC_DJANGO = "Django's connections are not asyncio's: call the form without _async by asgiref's sync_to_async"
KEEP = "SELECT " + ", ".join(
    f"pg_catalog.set_config('pgsched.kept_{name}', pg_catalog.current_setting('{name}'), true)" for name in KEPT
)
SEAL = "SELECT " + ", ".join(f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in SEALED.items())
UNSEAL = "SELECT " + ", ".join(
    f"pg_catalog.set_config('{name}', pg_catalog.current_setting('pgsched.kept_{name}'), true)" for name in KEPT
)


def call_on(connection: Any, use_case: Callable[[Any], T], *, lasts: bool = False) -> T:
    """Call a use case with the caller's connection: of psycopg, SQLAlchemy (any driver) or Django (or its alias).

    `lasts`: what it does is to last until the caller's transaction ends.

    Raises InputError for any other object; with `lasts`, also for a connection that commits by itself.
    """
    if (django := find_django(connection)) is not None:
        return on_django(django, lambda driver: call_on(driver, use_case, lasts=lasts))
    if isinstance(connection, Connection):
        if lasts:
            refuse_autocommit(connection)
        if needs_begin(connection):
            connection.execute(BEGIN)
        with connection.transaction(), sealed_session(connection):
            return use_case(connection)
    own = sync_sqlalchemy(connection)
    if sqlalchemy.is_psycopg(own):
        return call_on(sqlalchemy.psycopg_connection(own), use_case, lasts=lasts)
    with own.begin_nested():
        conn = ForeignConnection(send_by_sqlalchemy(own))
        with sealed_session(conn):
            return use_case(conn)


async def call_on_async(connection: Any, use_case: Callable[[Any], T], *, lasts: bool = False) -> T:
    """Call a use case in a thread, with the caller's asyncio connection: of psycopg or SQLAlchemy (any driver).

    The event loop stays free. `lasts` and errors: as for `call_on`.
    """
    bridge = Bridge(asyncio.get_running_loop())
    if isinstance(connection, AsyncConnection):
        if lasts:
            refuse_autocommit(connection)
        if needs_begin(connection):
            await connection.execute(BEGIN)
        return await in_block(connection.transaction(), bridge, send_by_psycopg_async(connection, bridge), use_case)
    own = await async_sqlalchemy(connection)
    if sqlalchemy.is_psycopg(own):
        return await call_on_async(await sqlalchemy.psycopg_connection_async(own), use_case, lasts=lasts)
    return await in_block(own.begin_nested(), bridge, send_by_async_sqlalchemy(own, bridge), use_case)


def on_django(django: Any, send: Callable[[Any], T]) -> T:
    """Call `send` with the driver's connection of a Django connection, on which values are read as on our own."""
    with noting_failures(django):
        driver = open_driver_connection(django)
        if not isinstance(driver, Connection):
            raise unusable(driver, "Django with psycopg 3", "install psycopg, and Django takes it instead of psycopg2")
        with our_loaders(driver):
            return send(driver)


def send_on(connection: Any, send: Callable[[Any], T]) -> T:
    """Call `send` with the caller's psycopg connection, or a ForeignConnection: for statements that need no seal.

    Raises InputError for any other object.
    """
    if (django := find_django(connection)) is not None:
        return on_django(django, send)
    if isinstance(connection, Connection) or sqlalchemy.is_async(connection) is None:
        return send(connection)
    own = sync_sqlalchemy(connection)
    if sqlalchemy.is_psycopg(own):
        return send(sqlalchemy.psycopg_connection(own))
    return send(ForeignConnection(send_by_sqlalchemy(own)))


async def send_on_async(connection: Any, send: Callable[[Any], Awaitable[T]], use_case: Callable[[Any], T] | None) -> T:
    """Call `send` with the caller's AsyncConnection of psycopg; for another driver call `use_case`, in a thread.

    Raises InputError for any other object, and for another driver where there is no `use_case`.
    """
    if not isinstance(connection, AsyncConnection) and find_django(connection) is not None:
        raise unusable(connection, "an asyncio connection", ASYNC_DJANGO)
    if isinstance(connection, AsyncConnection) or sqlalchemy.is_async(connection) is None or use_case is None:
        return await send(await sqlalchemy.psycopg_connection_async(connection))
    own = await async_sqlalchemy(connection)
    if sqlalchemy.is_psycopg(own):
        return await send(await sqlalchemy.psycopg_connection_async(own))
    bridge = Bridge(asyncio.get_running_loop())
    conn = ForeignConnection(send_by_async_sqlalchemy(own, bridge))
    return await until_ended(bridge, run_in_thread(lambda: use_case(conn)))


async def in_block(
    block: AbstractAsyncContextManager[Any], bridge: Bridge, send: Any, use_case: Callable[[Any], T]
) -> T:
    """Call a use case in a thread, within a block of the caller's transaction."""

    def work() -> T:
        conn = ForeignConnection(send)
        with sealed_session(conn):
            return use_case(conn)

    async def work_in_block() -> T:
        async with block:
            result = await run_in_thread(work)
            if bridge.is_cancelled:  # too late for the statement: undo it
                raise asyncio.CancelledError
            return result

    return await until_ended(bridge, work_in_block())


async def until_ended(bridge: Bridge, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work that uses the caller's connection.

    Where the caller is cancelled, cancel the statement and wait for the end of the work, however often the caller is
    cancelled again (anyio does that): until then the connection is in use.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        bridge.cancel()
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # else asyncio logs it. Some drivers close the connection of a cancelled statement.
        raise


def needs_begin(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Check whether the caller's transaction begins now: then it is the caller's to end, and not our block's."""
    return not conn.autocommit and conn.info.transaction_status == pq.TransactionStatus.IDLE


def refuse_autocommit(conn: Connection[Any] | AsyncConnection[Any]) -> None:
    """Raise InputError for a connection that commits each statement: nothing lasts there."""
    if conn.autocommit and conn.info.transaction_status == pq.TransactionStatus.IDLE:
        raise InputError(
            "connection: it commits by itself: open a transaction (`with conn.transaction():`), and call this inside",
            "connection",
        )


@contextmanager
def sealed_session(conn: Any) -> Iterator[None]:
    """Set our settings for the block, and restore the caller's. After an error, a rollback restores them."""
    conn.execute(KEEP)
    conn.execute(SEAL)
    yield
    conn.execute(UNSEAL)


def sync_sqlalchemy(given: Any) -> Any:
    """Return the SQLAlchemy Connection of a Connection or Session. Raises InputError for anything else."""
    if sqlalchemy.is_async(given) is not False:
        raise unusable(given, "a psycopg, SQLAlchemy or Django connection", "the form with _async takes asyncio ones")
    return sqlalchemy.check_postgresql(given.connection() if callable(given.connection) else given)


async def async_sqlalchemy(given: Any) -> Any:
    """Return the AsyncConnection of an AsyncConnection or AsyncSession. Raises InputError for anything else."""
    if find_django(given) is not None:
        raise unusable(given, "an asyncio connection", ASYNC_DJANGO)
    if sqlalchemy.is_async(given) is not True:
        raise unusable(given, "an asyncio connection of psycopg or SQLAlchemy", "the form without _async takes others")
    own = given if hasattr(given, "get_raw_connection") else await given.connection()
    return sqlalchemy.check_postgresql(own)


def unusable(given: object, expected: str, hint: str) -> InputError:
    """Make the error for a connection that cannot be used."""
    kind = f"{type(given).__module__.partition('.')[0]}.{type(given).__name__}"
    return InputError(f"connection: expected {expected}, got a {kind}; {hint}", "connection")
