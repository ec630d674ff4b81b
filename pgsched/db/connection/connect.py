"""One way to open a connection.

Every session pins its search path, time zone, date style, encoding and timeouts, notices a dead peer by itself, and
refuses a standby. psycopg is spoken only inside `db`; the rest of pgsched names its types from here.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from functools import partial
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg import Error as DatabaseError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgsched.db.connection import failover, routes
from pgsched.db.connection.bounded import bound_s, let_go
from pgsched.db.connection.connect_counter import TRIED
from pgsched.db.connection.failures import explain, first_line
from pgsched.errors import InputError
from pgsched.log import redact
from pgsched.threads import apart

__all__ = [
    "BY_INDEX",
    "BY_KEY",
    "AsyncConnection",
    "Connection",
    "DatabaseError",
    "aconnect",
    "connect",
    "ssl_problem",
]

# For sessions that only look rows up by key, a batch at a time. The statistics of a queue table are always stale, and
# a plan made from them reads all of history: forbid it, and do not plan again and again.
BY_KEY = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}
# For the leader's session, whose statements also join batches with each other.
BY_INDEX = {"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_sort": "off", "jit": "off"}
DEFAULTS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "target_session_attrs": "read-write",
}
# The same at the server's end: the locks of a session whose host is gone must not stay for hours.
THERE = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 -c tcp_user_timeout=15000"


def session_settings(purpose: str, timeout_s: float, settings: Mapping[str, str] | None) -> dict[str, str]:
    """What the session of a connection has, by name. `purpose` becomes part of application_name."""
    return {
        "application_name": f"pgsched {purpose} {socket.gethostname()}"[:63],
        "search_path": "pgsched,public",
        "TimeZone": "UTC",
        "DateStyle": "ISO",
        # Each statement sees what others committed before it: that is what all of ours are written for.
        "default_transaction_isolation": "read committed",
        "statement_timeout": f"{int(timeout_s * 1000)}",
        "lock_timeout": f"{int(min(timeout_s, 10) * 1000)}",
        **(settings or {}),
    }


def conninfo(dsn: str, settings: dict[str, str], encoding: str | None) -> tuple[str, str]:
    """The connection string with our defaults where the user's names nothing else: one that starts a session with
    these settings, and one with none of them, for a pooler. What the user names itself is taken out of `settings`."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise InputError(f"dsn: {redact(first_line(error))}", "dsn") from None
    if "application_name" in given:
        settings.pop("application_name", None)
    bare = {**DEFAULTS, **given} | ({"client_encoding": encoding} if encoding else {})
    escaped = {name: value.replace(" ", "\\ ") for name, value in settings.items() if name != "application_name"}
    options = " ".join(f"-c {name}={value}" for name, value in escaped.items())
    full = {**bare, "options": f"{THERE} {given.get('options') or ''} {options}"}
    full.setdefault("application_name", settings.get("application_name"))
    return make_conninfo("", **full), make_conninfo("", **bare)


def connect(
    dsn: str,
    *,
    purpose: str = "cli",
    timeout_s: float = 30,
    settings: dict[str, str] | None = None,
    encoding: str | None = "utf8",
) -> Connection[Any]:
    """A blocking autocommit connection. Raises the `PgschedError` that explains why there is none.

    The server ends a statement after `timeout_s` (0: never), and a connection that does not answer is ended soon after.
    `encoding`: of texts on their way (None: as the string or the server says, for statements that are not ours).
    """
    TRIED[purpose] += 1
    wanted = session_settings(purpose, timeout_s, settings)
    full, bare = conninfo(dsn, wanted, encoding)
    try:
        conn = None if routes.pooled(dsn) else failover.primary(full, routes.straight)
        conn = conn or routes.through(routes.way(dsn, bare), bare, wanted)
    except psycopg.OperationalError as error:
        raise explain(let_go(error)) from error
    conn.answer_within_s = bound_s(timeout_s)
    return conn


async def aconnect(
    dsn: str,
    *,
    purpose: str = "worker",
    timeout_s: float = 30,
    settings: dict[str, str] | None = None,
    encoding: str | None = "utf8",
) -> AsyncConnection[Any]:
    """The asyncio form of `connect`."""
    TRIED[purpose] += 1
    wanted = session_settings(purpose, timeout_s, settings)
    full, bare = conninfo(dsn, wanted, encoding)
    try:
        conn = None if routes.pooled(dsn) else await failover.primary_async(full, routes.straight_async)
        if conn is None:
            way = await apart(partial(routes.way, dsn, bare))
            conn = await routes.through_async(way, bare, wanted)
    except psycopg.OperationalError as error:
        raise explain(let_go(error)) from error
    conn.answer_within_s = bound_s(timeout_s)
    return conn


def ssl_problem(conn: Connection[Any]) -> str | None:
    """What is unwise about the way to a server on another host; None for one on this, by a socket or loopback."""
    host = conn.info.host
    try:
        near = host.startswith("/") or ipaddress.ip_address(conn.info.hostaddr or host).is_loopback
    except ValueError:
        near = not host or host == "localhost"
    mode = conn.info.get_parameters().get("sslmode", "prefer")
    if near or mode == "verify-full":
        return None
    if not conn.pgconn.ssl_in_use:
        return f"the connection to {host} is not encrypted: set sslmode=verify-full (and sslrootcert) in the DSN"
    if mode == "verify-ca":
        return None
    return f"sslmode={mode} does not ask whether {host} is who it says: set sslmode=verify-full in the DSN"
