"""Open a connection the straight way to the server, or through a pooler.

Invariant: every connection checks whether the server itself answers, because a DSN may lead elsewhere tomorrow.

The way decides when the session settings are sent:

- straight: with the start of the connection,
- a pooler that keeps the session: once, into the session,
- a pooler that shares sessions: into each transaction.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import psycopg

from pgsched.db.connection import transaction_pooling
from pgsched.db.connection.bounded import AsyncPatientConnection, PatientConnection
from pgsched.db.connection.pooler import Pooler, PoolerMode, detect_pooler, refuses_settings

WHO_ANSWERS = "SELECT pg_catalog.pg_backend_pid()"
PREPARE_AFTER = 5  # psycopg's default
known: dict[str, PoolerMode] = {}  # by DSN: what is known about the pooler there


def pooled(dsn: str) -> bool:
    """Check whether a pooler was found behind this DSN."""
    return dsn in known


def way(dsn: str, conninfo: str) -> PoolerMode:
    """Return how to use the pooler behind a DSN; detect its mode if that is not known."""
    found = known.get(dsn)
    if found is None or time.monotonic() > found.until:
        found = known[dsn] = detect_pooler(conninfo, found)
    return found


def straight(conninfo: str) -> PatientConnection | None:
    """Open a connection to the server itself; None if a pooler answers."""
    try:
        conn = PatientConnection.connect(conninfo, autocommit=True)
    except psycopg.OperationalError as error:
        if refuses_settings(error):
            return None
        raise
    try:
        row = conn.execute(WHO_ANSWERS).fetchone()
    except BaseException:
        conn.close()
        raise
    if row is not None and row[0] == conn.info.backend_pid:
        return conn
    conn.close()
    return None


async def straight_async(conninfo: str) -> AsyncPatientConnection | None:
    """Open a connection to the server itself: the asyncio form of `straight`."""
    try:
        conn = await AsyncPatientConnection.connect(conninfo, autocommit=True)
    except psycopg.OperationalError as error:
        if refuses_settings(error):
            return None
        raise
    try:
        row = await (await conn.execute(WHO_ANSWERS)).fetchone()
    except BaseException:
        await conn.close()
        raise
    if row is not None and row[0] == conn.info.backend_pid:
        return conn
    await conn.close()
    return None


def through(found: PoolerMode, conninfo: str, settings: Mapping[str, str]) -> PatientConnection:
    """Open a connection through a pooler."""
    prepare = PREPARE_AFTER if found.prepares else None
    if found.pooler is Pooler.SESSION:
        kept = transaction_pooling.KeptConnection.connect(conninfo, autocommit=True, prepare_threshold=prepare)
        kept.settings = transaction_pooling.set_settings_statement(settings, local=False)
        try:
            kept.execute(kept.settings)
        except BaseException:
            kept.close()
            raise
        return kept
    conn = transaction_pooling.SharedConnection.connect(conninfo, autocommit=True, prepare_threshold=prepare)
    transaction_pooling.prepare_shared_connection(conn, settings)
    conn.isolation_level = transaction_pooling.READ_COMMITTED
    conn.read_only = begin_access_mode(found, settings)
    return conn


async def through_async(found: PoolerMode, conninfo: str, settings: Mapping[str, str]) -> AsyncPatientConnection:
    """Open a connection through a pooler: the asyncio form of `through`."""
    prepare = PREPARE_AFTER if found.prepares else None
    if found.pooler is Pooler.SESSION:
        kept = await transaction_pooling.AsyncKeptConnection.connect(
            conninfo, autocommit=True, prepare_threshold=prepare
        )
        kept.settings = transaction_pooling.set_settings_statement(settings, local=False)
        try:
            await kept.execute(kept.settings)
        except BaseException:
            await kept.close()
            raise
        return kept
    conn = await transaction_pooling.AsyncSharedConnection.connect(conninfo, autocommit=True, prepare_threshold=prepare)
    transaction_pooling.prepare_shared_connection(conn, settings)
    await conn.set_isolation_level(transaction_pooling.READ_COMMITTED)
    await conn.set_read_only(begin_access_mode(found, settings))
    return conn


def begin_access_mode(found: PoolerMode, settings: Mapping[str, str]) -> bool | None:
    """Return the access mode of each BEGIN: False for READ WRITE; None: BEGIN names no mode.

    READ WRITE is only sent where transactions are read-only by default, because a standby refuses it with another error
    than usual. A pooler may lead to a standby after a failover.
    """
    return False if found.read_only and settings.get("default_transaction_read_only") == "off" else None
