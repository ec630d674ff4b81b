"""The rule: a SQLAlchemy connection or session stands for the psycopg connection it holds, in the transaction it is in.

SQLAlchemy is not imported: its objects are known by their classes. What holds another driver is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgsched.errors import InputError

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    Held = Connection | Session | scoped_session[Any]
    AsyncHeld = AsyncConnection | AsyncSession | async_scoped_session[Any]

DRIVERS = ("psycopg", "psycopg_async")
ASYNC = "sqlalchemy.ext.asyncio"


def held(given: Any) -> Any:
    """The psycopg connection that a SQLAlchemy Connection or Session holds; anything else as it is.

    Raises InputError if the driver is another one.
    """
    if not made_by(given, "sqlalchemy") or made_by(given, ASYNC) or not hasattr(type(given), "connection"):
        return given
    connection = given.connection() if callable(given.connection) else given
    check_driver(connection.dialect)
    if not connection.in_transaction():
        connection.begin()  # as its own first statement would: else its commit() would not know of our run
    return connection.connection.driver_connection


async def held_async(given: Any) -> Any:
    """The asyncio form of `held`, for an AsyncConnection or AsyncSession."""
    if not made_by(given, ASYNC) or not hasattr(type(given), "connection"):
        return given
    connection = given if hasattr(given, "get_raw_connection") else await given.connection()
    check_driver(connection.dialect)
    if not connection.in_transaction():
        await connection.begin()
    return (await connection.get_raw_connection()).driver_connection


def made_by(given: Any, package: str) -> bool:
    """Is it of a class of that package, or of one derived from such a class?"""
    return any(f"{kind.__module__}.".startswith(f"{package}.") for kind in type(given).__mro__)


def check_driver(dialect: Any) -> None:
    """Raises InputError unless psycopg is the driver."""
    if dialect.driver not in DRIVERS:
        instead = ", or send SELECT pgsched.enqueue(...) on it yourself" if dialect.name == "postgresql" else ""
        raise InputError(
            f"connection: SQLAlchemy speaks {dialect.name}+{dialect.driver} here, pgsched psycopg 3: make the engine"
            f" with postgresql+psycopg://{instead}",
            "connection",
        )
