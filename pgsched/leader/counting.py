"""Counting what ended, for charts that outlive the rows.

The rule: an instant is safe to count up to when every transaction that was writing runs at that instant has ended: who
begins to write later ends its runs later. (`finished_at` is the time of the statement and not of the commit: a handler
that has a transaction of its own may commit its success minutes afterwards.)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from pgsched.db import rollups
from pgsched.db.connect import Connection

Transaction = Callable[[], AbstractContextManager[Connection[Any]]]
BATCH = 5000


class Counting:
    """What one process knows of the transactions that may still commit endings. It is only a hint that is lost with the
    process: the mark is in the database."""

    def __init__(self) -> None:
        self._safe: datetime | None = None
        self._asked: tuple[datetime, frozenset[str]] | None = None

    def work(self, conn: Connection[Any], begin: Transaction) -> int:
        """Count a batch in a transaction of `begin`, which proves that this process may; returns how many."""
        safe = self._look(conn)
        if safe is None:
            return 0
        with begin() as proved:
            return rollups.count(proved, safe, BATCH)

    def _look(self, conn: Connection[Any]) -> datetime | None:
        """The instant that is safe by now; None: none is known yet."""
        if self._asked is None:
            # the clock first: whoever begins to write behind this question ends its runs after `at`
            at = rollups.clock(conn)
            self._asked = at, rollups.writers(conn)
        else:
            at, writing = self._asked
            self._asked = at, writing & rollups.writers(conn)
        at, writing = self._asked
        if not writing:
            self._safe, self._asked = at, None
        return self._safe
