"""Check whether a connection can be used again. No check sends anything to the server."""

from __future__ import annotations

import select
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection, pq


def is_alive(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Check that the server has not closed an idle connection, and that it is outside a transaction.

    An idle connection has something to read only if the server closes it (or sends a notice). The check sends nothing,
    so a repeated enqueue can never make a second run.
    """
    if not is_idle(conn):
        return False
    look = select.poll()
    look.register(conn.pgconn.socket, select.POLLIN)
    if not look.poll(0):
        return True
    try:
        conn.pgconn.consume_input()
    except psycopg.Error:
        return False
    return not look.poll(0)


def is_idle(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Check whether a connection is open, outside a transaction, and waits for no answer."""
    return conn.pgconn.transaction_status == pq.TransactionStatus.IDLE  # of a closed one it is UNKNOWN


def is_clean(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Check whether a connection that ran a user's statements can be used again."""
    return is_idle(conn) and conn.autocommit and conn.pgconn.pipeline_status == pq.PipelineStatus.OFF
