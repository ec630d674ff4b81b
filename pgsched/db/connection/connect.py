"""One way to open a connection, and one table of what each failure means.

Every session pins its search path, time zone, date style, encoding and timeouts, notices a dead peer by itself, and
refuses a standby. psycopg is spoken only inside `db`; the rest of pgsched names its types from here.
"""

from __future__ import annotations

import ipaddress
import random
import socket
from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg import Error as DatabaseError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgsched.db.connection import failover, routes
from pgsched.db.connection.bounded import bound_s, let_go
from pgsched.db.connection.connect_counter import TRIED
from pgsched.db.connection.pooler import refuses_settings
from pgsched.errors import (
    DatabaseReadOnly,
    DatabaseUnreachable,
    InputError,
    NotPermitted,
    PgschedError,
    QueueFull,
    SchemaTooOld,
)
from pgsched.log import redact
from pgsched.threads import apart

__all__ = [
    "BY_INDEX",
    "BY_KEY",
    "UNFORESEEN",
    "AsyncConnection",
    "Connection",
    "DatabaseError",
    "Reaction",
    "aconnect",
    "back_off_s",
    "classify",
    "connect",
    "explain",
    "ssl_problem",
]

LONGEST_BACK_OFF_S = 5.0
UNFORESEEN = 10  # times in a row that an error which nobody thought of is taken for one that passes: about 20 s
QUEUE_FULL = "PS429"  # migrations/0003/42_limits.sql
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


class Reaction(Enum):
    """What to do about a database error (DESIGN, "Connections")."""

    RECONNECT = "the connection is gone: reconnect with back-off and repeat the idempotent call"
    LOST = "the session was ended for being idle: leadership or claim is lost, never repeat"
    RETRY = "a conflict with another transaction: roll back and repeat a bounded number of times"
    STANDBY = "this server takes no writes: reconnect"
    BACK_OFF = "the server is out of a resource: wait long, report unhealthy"
    CONFIGURATION = "a grant or a migration is missing: end the process"
    VALUE = "it is the fault of a value that was sent: to repeat it is in vain"
    BUG = "anything else, which may pass or not: reconnect, repeat it UNFORESEEN times, then end the process"


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


def first_line(error: BaseException) -> str:
    """The error's first line of text, or its type's name if it has none."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def classify(error: BaseException) -> Reaction:
    """The reaction to any exception that a database call raised."""
    if isinstance(error, DatabaseUnreachable):
        return Reaction.RECONNECT
    if isinstance(error, DatabaseReadOnly):
        return Reaction.STANDBY
    if isinstance(error, PgschedError):
        return Reaction.CONFIGURATION
    code = getattr(error, "sqlstate", None)
    if code is None:  # about the connection, or by psycopg (or Python) about a value that it cannot send
        unsendable = not isinstance(error, psycopg.Error) or isinstance(error, UNSENDABLE)
        return Reaction.VALUE if unsendable else Reaction.RECONNECT
    return REACTIONS.get(code) or REACTIONS.get(code[:2]) or Reaction.BUG


UNSENDABLE = (psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError)
REACTIONS = {
    "57P01": Reaction.RECONNECT,
    "57P02": Reaction.RECONNECT,
    "57P03": Reaction.RECONNECT,
    "08": Reaction.RECONNECT,
    "25P04": Reaction.RECONNECT,  # transaction_timeout, which an administrator has set: the session is over
    "57P05": Reaction.LOST,
    "25P03": Reaction.LOST,
    "40": Reaction.RETRY,
    "55P03": Reaction.RETRY,
    "57014": Reaction.RETRY,
    "25006": Reaction.STANDBY,
    "53": Reaction.BACK_OFF,
    "42501": Reaction.CONFIGURATION,
    "42P01": Reaction.CONFIGURATION,
    "42703": Reaction.CONFIGURATION,
    "42883": Reaction.CONFIGURATION,
    "3F000": Reaction.CONFIGURATION,
    "28": Reaction.CONFIGURATION,
    "3D000": Reaction.CONFIGURATION,
    # data exceptions, violated constraints, limits of the server, and what a trigger raises
    "22": Reaction.VALUE,
    "23": Reaction.VALUE,
    "44": Reaction.VALUE,
    "54": Reaction.VALUE,
    "P0": Reaction.VALUE,
}


def back_off_s(failures: int, first_s: float) -> float:
    """Seconds to wait after so many failures in a row: `first_s` doubled each time up to LONGEST_BACK_OFF_S, with
    jitter that only shortens it, so that a fleet does not come back in step."""
    return min(LONGEST_BACK_OFF_S, first_s * 2.0 ** min(failures, 10)) * (0.5 + random.random() / 2)


def explain(error: psycopg.Error) -> PgschedError:
    """The same failure as one line that says what, why and what to do, with its own exit code."""
    reason = redact(first_line(error))
    code = error.sqlstate
    if refuses_settings(error):
        reason = f"dsn: {reason}: a pooler takes no options of a DSN (or PGOPTIONS): leave them out, or go round it"
    if refuses_settings(error) or (code is None and isinstance(error, psycopg.DataError)):
        return InputError(reason)  # by psycopg before sending: NUL in a text, a number too large
    # libpq refuses a standby by target_session_attrs without a sqlstate; one line a host
    standby = code is None and ("session is read-only" in str(error) or "session is not read-write" in str(error))
    if code == "25006" or standby:
        return DatabaseReadOnly(f"the database takes no writes ({reason}): point the DSN at the primary server")
    if code == "42501":
        return NotPermitted(f"the database role lacks a grant: {reason}; ask the owner of schema pgsched for it")
    if code in ("42P01", "42703", "42883", "3F000"):
        return SchemaTooOld(f"the database has no (or an older) pgsched schema: {reason}; run `pgsched migrate`")
    if code is None or code.startswith(("08", "57P", "53", "28", "3D")):
        return DatabaseUnreachable(f"cannot reach the database: {reason}; check the DSN and that the server is running")
    if code == QUEUE_FULL:
        return QueueFull(reason)
    if code.startswith(("22", "23")):
        return InputError(reason, error.diag.column_name)
    return PgschedError(f"the database refused the statement: {reason}")
