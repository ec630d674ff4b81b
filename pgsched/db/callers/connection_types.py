"""The types of `connection=`: what type checkers let a program give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol


class DjangoConnection(Protocol):
    """A connection of Django, such as `django.db.connection`. Instead of one, an alias of DATABASES may be given."""

    def ensure_connection(self) -> None:
        """Connect, unless it is connected."""
        ...


if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

    from pgsched.adapters.sqlalchemy import AsyncSqlalchemyHandle, SqlalchemyHandle

    SyncConn = Connection[Any] | SqlalchemyHandle | DjangoConnection | str
    AsyncConn = AsyncConnection[Any] | AsyncSqlalchemyHandle
