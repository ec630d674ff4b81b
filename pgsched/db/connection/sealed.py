"""The session settings that our statements are written for, whatever the server, database, role or a file sets.

Invariant: in a pgsched session, no name is looked up in a schema where other roles may create objects. No text is read
or written in a style that psycopg and our functions do not know.

Every role may set each of these settings, on PostgreSQL 14 and later. The schema of temporary tables is named last,
because it would be searched first if it were not named.
"""

from __future__ import annotations

from typing import Any, cast

from psycopg import AsyncConnection, Connection
from psycopg.types.datetime import DateLoader, IntervalLoader, TimestamptzLoader

SEARCH_PATH = "pg_catalog,pg_temp"
# These apply to the statements of handlers and SQL jobs as well.
STYLES = {"TimeZone": "UTC", "DateStyle": "ISO", "IntervalStyle": "postgres"}
SESSIONS = {
    "idle_session_timeout": "0",
    # Each statement sees what others committed before it: all our statements are written for that.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
}
RIGHTS = {"row_security": "on"}  # with off, a role under a row policy is refused the whole table
# These apply to our statements only.
OURS = {
    "search_path": SEARCH_PATH,
    "standard_conforming_strings": "on",
    "extra_float_digits": "1",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "quote_all_identifiers": "off",
    "exit_on_error": "off",
}
SETTINGS = STYLES | SESSIONS | RIGHTS | OURS
# For a session with a user's statements: the defaults of login and database (None: not set).
THEIRS: dict[str, str | None] = dict.fromkeys(OURS)
# The same for a database that is not pgsched's.
ELSEWHERE = THEIRS | dict.fromkeys((*RIGHTS, "default_transaction_read_only"))


class OurStyles:
    """A stand-in for a connection whose server has reported STYLES."""

    adapters = None

    @property
    def connection(self) -> OurStyles:
        """The stand-in itself."""
        return self

    @property
    def pgconn(self) -> OurStyles:
        """The stand-in itself."""
        return self

    def parameter_status(self, name: bytes) -> bytes | None:
        """Return the value of a setting in STYLES; None for any other."""
        return STYLES.get(name.decode(), "").encode() or None


class OurTimestamptz(TimestamptzLoader):
    """Reads an instant in our style, whatever style the server has reported."""

    def __init__(self, oid: int, context: Any = None) -> None:
        super().__init__(oid, cast(Any, OurStyles()))


class OurDate(DateLoader):
    """Reads a date in our style, whatever style the server has reported."""

    def __init__(self, oid: int, context: Any = None) -> None:
        super().__init__(oid, cast(Any, OurStyles()))


class OurInterval(IntervalLoader):
    """Reads an interval in our style, whatever style the server has reported."""

    def __init__(self, oid: int, context: Any = None) -> None:
        super().__init__(oid, cast(Any, OurStyles()))


LOADERS: dict[str, Any] = {"timestamptz": OurTimestamptz, "date": OurDate, "interval": OurInterval}


def read_our_styles(conn: Connection[Any] | AsyncConnection[Any]) -> None:
    """Make a connection read STYLES although its sessions start with others.

    If the styles are set in each transaction, the server does not report them. Where sessions have our styles,
    psycopg's own loaders stay, because they are faster.
    """
    if any((conn.info.parameter_status(name) or "").partition(",")[0] != value for name, value in STYLES.items()):
        for kind, loader in LOADERS.items():
            conn.adapters.register_loader(kind, loader)
