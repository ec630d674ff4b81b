"""Refuse old primaries: a process that has seen a newer timeline of a cluster never connects to an older one.

A promoted standby begins a new timeline. A former primary that comes back accepts writes as if nothing had happened,
but is still on the old timeline. A DSN that names it first would lead half of a fleet there.

The check is only made where a DSN names several servers. If it names one server, that one was meant.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.conninfo import make_conninfo

from pgsched import log
from pgsched.db.connection.bounded import PatientConnection
from pgsched.db.connection.dsn import parameters

logger = log.get("connect")
Conn = TypeVar("Conn", bound=Connection[Any])
AsyncConn = TypeVar("AsyncConn", bound=AsyncConnection[Any])
# Returns (cluster, timeline) of a primary, no row on a standby. It also runs in sessions with another search path.
WHERE_AM_I = """SELECT system_identifier::pg_catalog.text, ('x' OPERATOR(pg_catalog.||)
    pg_catalog."left"(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8))::bit(32)::bigint
FROM pg_catalog.pg_control_system() WHERE NOT pg_catalog.pg_is_in_recovery()"""
NO_ANSWER = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.FeatureNotSupported,
)
PARTS = ("host", "hostaddr", "port")
LOOK_S = 2
_newest: dict[str, int] = {}


def servers(conninfo: str) -> list[str]:
    """Return one connection string for each server that this one names."""
    given = parameters(conninfo)
    lists = {part: str(given[part]).split(",") for part in PARTS if given.get(part) is not None}
    count = max((len(values) for part, values in lists.items() if part != "port"), default=1)
    return [
        make_conninfo("", **{**given, **{part: values[min(n, len(values) - 1)] for part, values in lists.items()}})
        for n in range(count)
    ]


def primary(conninfo: str, connect: Callable[[str], Conn | None]) -> Conn | None:
    """Return the connection that `connect` opens to the first server that is not an old primary.

    Raises what `connect` raises, and OperationalError where only old primaries are left.
    """
    conn = connect(conninfo)
    if conn is None or len(each := servers(conninfo)) < 2 or not passed_over(conn):
        return conn
    for one in each:
        with contextlib.suppress(psycopg.OperationalError):
            conn = connect(one)
            if conn is None or not passed_over(conn):
                return conn
    raise left_alone()


async def primary_async(conninfo: str, connect: Callable[[str], Awaitable[AsyncConn | None]]) -> AsyncConn | None:
    """Connect to a server that is not an old primary: the asyncio form of `primary`."""
    conn = await connect(conninfo)
    if conn is None or len(each := servers(conninfo)) < 2 or not await passed_over_async(conn):
        return conn
    for one in each:
        with contextlib.suppress(psycopg.OperationalError):
            conn = await connect(one)
            if conn is None or not await passed_over_async(conn):
                return conn
    raise left_alone()


def learn_timelines(conninfo: str) -> None:
    """Connect once to every server that the string names, so that a new process knows the newest timeline."""
    for one in servers(conninfo) if len(servers(conninfo)) > 1 else ():
        with contextlib.suppress(psycopg.Error):
            look = make_conninfo(one, connect_timeout=LOOK_S, target_session_attrs="any")
            with PatientConnection.connect(look, autocommit=True) as conn:
                note_timeline(cluster_and_timeline(conn))


def cluster_and_timeline(conn: Connection[Any]) -> tuple[str, int] | None:
    """Return the cluster and timeline that a connection leads to; None for a standby, or without permission to ask."""
    with contextlib.suppress(*NO_ANSWER):
        return conn.execute(WHERE_AM_I).fetchone()
    return None


async def cluster_and_timeline_async(conn: AsyncConnection[Any]) -> tuple[str, int] | None:
    """Return the cluster and timeline that a connection leads to: the asyncio form of `cluster_and_timeline`."""
    with contextlib.suppress(*NO_ANSWER):
        return await (await conn.execute(WHERE_AM_I)).fetchone()
    return None


async def passed_over_async(conn: AsyncConnection[Any]) -> bool:
    """Close the connection if it leads to an old primary: the asyncio form of `passed_over`."""
    try:
        found = await cluster_and_timeline_async(conn)
    except BaseException:
        await conn.close()
        raise
    if note_timeline(found):
        tell(conn)
        await conn.close()
        return True
    return False


def passed_over(conn: Connection[Any]) -> bool:
    """Close the connection if it leads to an old primary, and return whether it does.

    The connection is closed as well where this raises.
    """
    try:
        found = cluster_and_timeline(conn)
    except BaseException:
        conn.close()
        raise
    if note_timeline(found):
        tell(conn)
        conn.close()
        return True
    return False


def note_timeline(found: tuple[str, int] | None) -> bool:
    """Check whether this process has seen a newer timeline of that cluster, and remember this one."""
    if found is None:
        return False
    cluster, timeline = found
    newest = _newest.get(cluster, 0)
    _newest[cluster] = max(newest, timeline)
    return timeline < newest


def tell(conn: Connection[Any] | AsyncConnection[Any]) -> None:
    """Log that an old primary is not used."""
    logger.warning("an old primary is passed over: stop it", host=conn.info.host, port=conn.info.port)


def left_alone() -> psycopg.OperationalError:
    """Return the error for a cluster in which only an old primary takes writes."""
    return psycopg.OperationalError("only an old primary takes writes, and a newer one was seen: stop it")
