"""Find the caller's transaction behind `connection=`, whichever library the connection is of.

Invariant: no library is imported for it. Its objects are recognized by the names of their classes' modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import AsyncConnection, Connection

from pgsched.adapters.django import find_django
from pgsched.adapters.sqlalchemy import is_async, is_from_package
from pgsched.db.queries.runs.enqueue import wrong_connection
from pgsched.testing.callers.base import CallerTransaction, Report
from pgsched.testing.callers.psycopg import Listeners

if TYPE_CHECKING:
    from pgsched.testing.callers.django import Atomics
    from pgsched.testing.callers.sqlalchemy import Watches


class Transactions:
    """Follows the transactions of all callers. `report` is called after a commit where the library has a hook."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._listeners = Listeners()
        self._watches: Watches | None = None
        self._atomics: Atomics | None = None

    def follow(self, given: Any) -> CallerTransaction | None:
        """Return the caller's transaction; None if what is enqueued counts at once.

        Objects of other kinds, such as a mock, have no transaction. Raises InputError for an asyncio connection.
        """
        if isinstance(given, AsyncConnection) or is_async(given):
            raise wrong_connection(given, "psycopg.Connection")
        if isinstance(given, Connection):
            return self._listeners.follow(given)
        return self._follow_other(given)

    async def follow_async(self, given: Any) -> CallerTransaction | None:
        """Return the caller's transaction: the asyncio form of `follow`."""
        if isinstance(given, Connection) or is_async(given) is False:
            raise wrong_connection(given, "psycopg.AsyncConnection")
        if isinstance(given, AsyncConnection):
            return await self._listeners.follow_async(given)
        return self._follow_other(given)

    def look(self) -> None:
        """Find out which transactions have ended; their `state` says how. SQLAlchemy tells that by itself."""
        self._listeners.look()
        if self._atomics is not None:
            self._atomics.look()

    def close(self) -> None:
        """Close what follows the transactions."""
        self._listeners.close()
        if self._watches is not None:
            self._watches.close()

    def _follow_other(self, given: Any) -> CallerTransaction | None:
        if (found := find_django(given)) is not None:
            from pgsched.testing.callers import django

            found.validate_no_broken_transaction()  # as outside of tests: see `open_driver_connection`
            self._atomics = self._atomics or django.Atomics(self._report)
            return self._atomics.follow(django.own_connection(found))
        if is_from_package(given, "sqlalchemy"):
            from pgsched.testing.callers import sqlalchemy

            handle = sqlalchemy.find_handle(given)
            if handle is not None:
                self._watches = self._watches or sqlalchemy.Watches(self._report)
                return self._watches.follow(handle)
        return None


def handle_of(given: Any) -> Any:
    """Return the object by which a transaction is known, as `CallerTransaction.handle` has it."""
    if (found := find_django(given)) is not None:
        from pgsched.testing.callers import django

        return django.own_connection(found)
    if is_from_package(given, "sqlalchemy"):
        from pgsched.testing.callers import sqlalchemy

        return sqlalchemy.names_transaction(sqlalchemy.find_handle(given))
    return given
