"""Count ended runs, for charts that outlive the rows.

Invariant: it is safe to count up to an instant when every transaction that was writing runs at that instant has ended.
A transaction that begins to write later ends its runs later.

`finished_at` is the time of the statement and not of the commit. A handler with a transaction of its own may commit its
success minutes afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import rollups
from pgsched.db.queries.leader.rollups import Look

Transaction = Callable[[], AbstractContextManager[Connection[Any]]]
BATCH = 5000
STALE = timedelta(minutes=10)  # the mark moves at least this often


class RunCounter:
    """State of counting in one process: the transactions that may still commit the end of a run.

    This is only a hint, and is lost with the process: the mark is in the database.

    `is_incomplete`: the last pass could not count to its end.
    `behind_s`: for how many seconds the oldest of these transactions has been waited for.
    """

    def __init__(self) -> None:
        self.is_incomplete = False
        self.behind_s = 0.0
        self._awaited_writers: tuple[datetime, frozenset[str]] | None = None
        self._moved_at: datetime | None = None
        self._stale_at = 0.0
        self._counts_until: datetime | None = None

    def is_due(self, now: float) -> bool:
        """Check whether there is something to do at the monotonic instant `now`, even where no run has ended."""
        return self.is_incomplete or now >= self._stale_at

    def count_batch(
        self, conn: Connection[Any], begin: Transaction, n: int = BATCH, set_aside_ids: Sequence[int] = ()
    ) -> int:
        """Count a batch in a transaction of `begin`, which proves that this process may; return how many runs.

        Runs in `set_aside_ids` are left out for good: the mark goes past them.
        """
        found = rollups.find_uncounted(conn)
        self.behind_s = (found.now - self._awaited_writers[0]).total_seconds() if self._awaited_writers else 0.0
        safe = self._safe_instant(found)
        self.is_incomplete = safe is None
        if safe is None or not (found.some or self._mark_is_old(found.now)):
            return 0
        with begin() as proved:
            self._counts_until = safe
            counted = rollups.count(proved, safe, n, set_aside_ids)
        self._moved_at, self._stale_at = safe, time.monotonic() + STALE.total_seconds()
        self.is_incomplete = counted >= n
        return counted

    def first_run(self, conn: Connection[Any], set_aside_ids: Sequence[int]) -> int | None:
        """Return the run that a failed `count_batch` began with."""
        return None if self._counts_until is None else rollups.first_uncounted(conn, self._counts_until, set_aside_ids)

    def _safe_instant(self, found: Look) -> datetime | None:
        """Return the instant up to which no further end of a run can be committed.

        None while transactions that the last look saw are still open.
        """
        at, writing = self._awaited_writers or (found.now, found.writers)
        writing &= found.writers
        self._awaited_writers = (at, writing) if writing else None
        return None if writing else at

    def _mark_is_old(self, now: datetime) -> bool:
        """Check whether the mark has to move although no run has ended: pruning stops at the mark."""
        return self._moved_at is None or now > self._moved_at + STALE
