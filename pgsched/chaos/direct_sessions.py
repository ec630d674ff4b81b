"""Connections of the stage itself: to the fault's own database, past any proxy, and to the ledger."""

from __future__ import annotations

from typing import Any

import psycopg


class DirectSessions:
    """Autocommit connections, opened again after the server went away.

    `ledger_dsn` names the fault's own database, or another server.
    """

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.ledger_dsn = dsn
        self._db: psycopg.Connection[Any] | None = None
        self._ledger: psycopg.Connection[Any] | None = None

    @property
    def db(self) -> psycopg.Connection[Any]:
        """Return the connection to the fault's own database."""
        if self._db is None or self._db.closed or self._db.broken:
            self._db = psycopg.connect(self.dsn, autocommit=True, connect_timeout=5, application_name="chaos stage")
        return self._db

    @property
    def ledger(self) -> psycopg.Connection[Any]:
        """Return the connection to the database that holds the ledger."""
        if self.ledger_dsn == self.dsn:
            return self.db
        if self._ledger is None or self._ledger.closed or self._ledger.broken:
            self._ledger = psycopg.connect(self.ledger_dsn, autocommit=True, application_name="chaos stage")
        return self._ledger

    def close(self) -> None:
        """Close the open connections."""
        for conn in (self._db, self._ledger):
            if conn is not None:
                conn.close()
