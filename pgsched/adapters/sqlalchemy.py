"""Get the psycopg connection from a SQLAlchemy connection or session, in its transaction.

SQLAlchemy is not imported for that: its objects are recognized by the names of their classes' modules. `ask` sends its
question through SQLAlchemy, so it works with any driver. The other functions refuse drivers other than psycopg.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgsched.errors import InputError

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    SqlalchemyHandle = Connection | Session | scoped_session[Any]
    AsyncSqlalchemyHandle = AsyncConnection | AsyncSession | async_scoped_session[Any]

DRIVERS = ("psycopg", "psycopg_async")
ASYNC = "sqlalchemy.ext.asyncio"
TRANSACTION = "SELECT transaction_timestamp()"


def psycopg_connection(given: Any) -> Any:
    """Return the psycopg connection of a SQLAlchemy Connection or Session; any other object unchanged.

    Raises InputError for another driver.
    """
    if (
        not is_from_package(given, "sqlalchemy")
        or is_from_package(given, ASYNC)
        or not hasattr(type(given), "connection")
    ):
        return given
    connection = given.connection() if callable(given.connection) else given
    check_driver(connection.dialect)
    if not connection.in_transaction():
        connection.begin()  # like its own first statement, so that its commit() includes our run
    return connection.connection.driver_connection


async def psycopg_connection_async(given: Any) -> Any:
    """Return the psycopg connection of an AsyncConnection or AsyncSession: as `psycopg_connection` does."""
    if not is_from_package(given, ASYNC) or not hasattr(type(given), "connection"):
        return given
    connection = given if hasattr(given, "get_raw_connection") else await given.connection()
    check_driver(connection.dialect)
    if not connection.in_transaction():
        await connection.begin()
    return (await connection.get_raw_connection()).driver_connection


def is_psycopg(connection: Any) -> bool:
    """Check whether psycopg is the driver of a SQLAlchemy Connection or AsyncConnection."""
    return connection.dialect.driver in DRIVERS


def check_postgresql(connection: Any) -> Any:
    """Return a SQLAlchemy connection. Raises InputError where its database is not PostgreSQL."""
    if connection.dialect.name != "postgresql":
        raise InputError(f"connection: it is of {connection.dialect.name}, and runs are in PostgreSQL", "connection")
    return connection


def is_async(given: Any) -> bool | None:
    """Check whether a SQLAlchemy Connection or Session is to be awaited; None if it is neither."""
    if not is_from_package(given, "sqlalchemy") or not hasattr(type(given), "execute"):
        return None
    return is_from_package(given, ASYNC)


def ask(given: Any, question: str, values: dict[str, Any]) -> None:
    """Send a question that returns the transaction's time, with any driver.

    Raises InputError if the transaction ended with the answer (AUTOCOMMIT). SQLAlchemy does not report AUTOCOMMIT for
    all drivers.
    """
    from sqlalchemy import text

    at = given.execute(text(question), values).scalar()
    check_still_open(at, given.execute(text(TRANSACTION)).scalar())


async def ask_async(given: Any, question: str, values: dict[str, Any]) -> None:
    """Send a question: the asyncio form of `ask`."""
    from sqlalchemy import text

    answer = await given.execute(text(question), values)
    check_still_open(answer.scalar(), (await given.execute(text(TRANSACTION))).scalar())


def check_still_open(began: Any, begins: Any) -> None:
    """Raise InputError unless two statements ran in one transaction."""
    if began != begins:
        raise InputError(
            "assert_claim: the connection commits by itself (AUTOCOMMIT), so that the claim would be held for no time:"
            " use one without, and assert the claim in the transaction that writes",
            "conn",
        )


def is_from_package(given: Any, package: str) -> bool:
    """Check whether the object's class, or one of its base classes, is of that package."""
    return any(f"{kind.__module__}.".startswith(f"{package}.") for kind in type(given).__mro__)


def check_driver(dialect: Any) -> None:
    """Raise InputError unless psycopg is the driver."""
    if dialect.driver not in DRIVERS:
        instead = ", or send SELECT pgsched.enqueue(...) on it yourself" if dialect.name == "postgresql" else ""
        raise InputError(
            f"connection: SQLAlchemy speaks {dialect.name}+{dialect.driver} here, pgsched psycopg 3: make the engine"
            f" with postgresql+psycopg://{instead}",
            "connection",
        )
