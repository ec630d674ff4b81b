"""The settings that our statements are written for, whatever the server, the database, the role or a file says.

Invariant: in a session of ours no name is looked up in a schema where others may create something, and no text is read
or written in a style that psycopg and our functions do not know. Each setting may be set by every role on PostgreSQL 14
and later. The schema of temporary tables comes last, because one that is not named is searched first.
"""

from __future__ import annotations

from typing import Any, cast

from psycopg import AsyncConnection, Connection
from psycopg.types.datetime import DateLoader, IntervalLoader, TimestamptzLoader

SEARCH_PATH = "pg_catalog,pg_temp"
# Of handlers' and SQL jobs' statements as well.
STYLES = {"TimeZone": "UTC", "DateStyle": "ISO", "IntervalStyle": "postgres"}
SESSIONS = {
    "idle_session_timeout": "0",
    # Each statement sees what others committed before it: that is what all of ours are written for.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
}
RIGHTS = {"row_security": "on"}  # else who is bound by a policy is refused all of the table
# Of our statements alone.
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
# For a session of a user's statements: what login and database say.
THEIRS: dict[str, str | None] = dict.fromkeys(OURS)
# The same in another database, which is none of ours.
ELSEWHERE = THEIRS | dict.fromkeys((*RIGHTS, "default_transaction_read_only"))


class OurStyles:
    """Stands for a connection whose server has told of STYLES."""

    adapters = None

    @property
    def connection(self) -> OurStyles:
        return self

    @property
    def pgconn(self) -> OurStyles:
        return self

    def parameter_status(self, name: bytes) -> bytes | None:
        return STYLES.get(name.decode(), "").encode() or None


class OurTimestamptz(TimestamptzLoader):
    """Reads an instant, whatever style the server has told of."""

    def __init__(self, oid: int, context: Any = None) -> None:
        super().__init__(oid, cast(Any, OurStyles()))


class OurDate(DateLoader):
    """Reads a date, whatever style the server has told of."""

    def __init__(self, oid: int, context: Any = None) -> None:
        super().__init__(oid, cast(Any, OurStyles()))


class OurInterval(IntervalLoader):
    """Reads an interval, whatever style the server has told of."""

    def __init__(self, oid: int, context: Any = None) -> None:
        super().__init__(oid, cast(Any, OurStyles()))


LOADERS: dict[str, Any] = {"timestamptz": OurTimestamptz, "date": OurDate, "interval": OurInterval}


def read_our_styles(conn: Connection[Any] | AsyncConnection[Any]) -> None:
    """Let a connection read STYLES although its sessions begin with others: where they are given with each transaction,
    the server does not tell of them. psycopg's own loaders are quicker, and stay where the sessions have our styles."""
    if any((conn.info.parameter_status(name) or "").partition(",")[0] != value for name, value in STYLES.items()):
        for kind, loader in LOADERS.items():
            conn.adapters.register_loader(kind, loader)
