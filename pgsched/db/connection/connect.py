"""Open connections: the only way to open one in pgsched.

Every session is sealed (sealed.py beside this), has time limits, detects a dead peer by itself, and refuses a standby.
Only `db` uses psycopg; the rest of pgsched imports its types from here.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg import Error as DatabaseError
from psycopg.conninfo import make_conninfo

from pgsched import hidden_environment
from pgsched.db.connection import failover, routes, sealed
from pgsched.db.connection.bounded import answer_limit_s, drop_references
from pgsched.db.connection.dsn import connection_parameters, parameters
from pgsched.db.connection.failures import explain_error
from pgsched.db.connection.json_values import read_safely
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.threads import run_in_thread

__all__ = [
    "BY_INDEX",
    "BY_KEY",
    "CONNECT_ATTEMPTS",
    "AsyncConnection",
    "Connection",
    "DatabaseError",
    "aconnect",
    "connect",
    "enable_client_check",
    "ssl_problem",
]

# How often this process has tried to connect, by purpose: the basis of the metric for reconnects.
CONNECT_ATTEMPTS: Counter[str] = Counter()

# For sessions that only look up rows by key, a batch at a time. The statistics of a queue table are always stale, and
# plans made from them read all of history. So forbid these plans, and plan each statement once.
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
    "target_session_attrs": "primary",  # not read-write: a primary with a read-only default accepts our writes
}
# A server notices the loss of its client only at the end of a statement. Some systems can check sooner.
LOOK_FOR_CLIENT = "SET client_connection_check_interval = '2s'"
Settings = Mapping[str, str | None]
# The same keepalives at the server's end: the locks of a session whose host is gone must not stay for hours.
SERVER_KEEPALIVES = (
    "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 -c tcp_user_timeout=15000"
)


def session_settings(purpose: str, timeout_s: float, settings: Settings | None) -> dict[str, str]:
    """Return the settings of a session, by name.

    `purpose`: becomes part of application_name. `settings`: more settings; None as a value leaves the setting to the
        server.
    """
    given = {
        "application_name": f"pgsched {purpose} {socket.gethostname()}"[:63],
        **sealed.SETTINGS,
        "statement_timeout": f"{int(timeout_s * 1000)}",
        "lock_timeout": f"{int(min(timeout_s, 10) * 1000)}",
        **(settings or {}),
    }
    return {name: value for name, value in given.items() if value is not None}


def conninfo(dsn: str, settings: dict[str, str], encoding: str | None) -> tuple[str, str]:
    """Return two connection strings: the first starts a session with the settings; the second has none, for a pooler.

    Both have our defaults for what the user's string leaves open. A setting that the user's string names is removed
    from `settings`.
    """
    given = parameters(dsn)
    if "application_name" in given:
        settings.pop("application_name", None)
    password = hidden_environment.dropped_secrets().get("PGPASSWORD")  # removed from the environment that libpq reads
    given = ({"password": password} if password else {}) | given
    bare = {**DEFAULTS, **given} | ({"client_encoding": encoding} if encoding else {})
    escaped = {name: value.replace(" ", "\\ ") for name, value in settings.items() if name != "application_name"}
    options = " ".join(f"-c {name}={value}" for name, value in escaped.items())
    full = {**bare, "options": f"{SERVER_KEEPALIVES} {given.get('options') or ''} {options}"}
    full.setdefault("application_name", settings.get("application_name"))
    return make_conninfo("", **full), make_conninfo("", **bare)


def connect(
    dsn: str,
    *,
    purpose: str = "cli",
    timeout_s: float = 30,
    settings: Settings | None = None,
    encoding: str | None = "utf8",
) -> Connection[Any]:
    """Open a blocking autocommit connection.

    `timeout_s`: the server ends a statement after this time (0: never), and an unanswered connection is closed soon
        after.
    `encoding`: the client encoding. None: as the string or the server says, for a user's statements. Then JSON is read
        by psycopg's own rules.

    Raises the `PgschedError` that explains why there is no connection.
    """
    CONNECT_ATTEMPTS[purpose] += 1
    wanted = session_settings(purpose, timeout_s, settings)
    full, bare = conninfo(dsn, wanted, encoding)
    try:
        conn = None if routes.pooled(dsn) else failover.primary(full, routes.straight)
        conn = conn or routes.through(routes.way(dsn, bare), bare, wanted)
    except psycopg.OperationalError as error:
        raise explain_error(drop_references(error)) from error
    conn.answer_within_s = answer_limit_s(timeout_s)
    if encoding is not None:
        read_safely(conn)
    return conn


async def aconnect(
    dsn: str,
    *,
    purpose: str = "worker",
    timeout_s: float = 30,
    settings: Settings | None = None,
    encoding: str | None = "utf8",
) -> AsyncConnection[Any]:
    """Open an asyncio connection: the asyncio form of `connect`."""
    CONNECT_ATTEMPTS[purpose] += 1
    wanted = session_settings(purpose, timeout_s, settings)
    full, bare = conninfo(dsn, wanted, encoding)
    try:
        conn = None if routes.pooled(dsn) else await failover.primary_async(full, routes.straight_async)
        if conn is None:
            way = await run_in_thread(partial(routes.way, dsn, bare))
            conn = await routes.through_async(way, bare, wanted)
    except psycopg.OperationalError as error:
        raise explain_error(drop_references(error)) from error
    conn.answer_within_s = answer_limit_s(timeout_s)
    if encoding is not None:
        read_safely(conn)
    return conn


def enable_client_check(conn: Connection[Any]) -> None:
    """Let the server end a long statement soon after this process is gone, except behind a pooler."""
    if not is_shared(conn):
        with contextlib.suppress(DatabaseError):
            conn.execute(LOOK_FOR_CLIENT)


def ssl_problem(conn: Connection[Any]) -> str | None:
    """Return what is unsafe about the connection to a server on another host; None where nothing is.

    A server on this host is reached by a socket or by loopback.
    """
    host = conn.info.host
    try:
        near = host.startswith("/") or ipaddress.ip_address(conn.info.hostaddr or host).is_loopback
    except ValueError:
        near = not host or host == "localhost"
    mode = connection_parameters(conn).get("sslmode", "prefer")
    if near or mode == "verify-full":
        return None
    if not conn.pgconn.ssl_in_use:
        return f"the connection to {host} is not encrypted: set sslmode=verify-full (and sslrootcert) in the DSN"
    if mode == "verify-ca":
        return None
    return f"sslmode={mode} does not ask whether {host} is who it says: set sslmode=verify-full in the DSN"
