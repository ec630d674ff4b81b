"""Pruner: delete the ended runs that the settings keep no longer, in small batches.

Invariant: a run is read once for each retention time in use, when it has just reached that age, or when its own
retention is over. So a batch reads no deleted rows again, and none that another setting keeps longer.

Once an hour, and after a change of a setting, everything is read again. Runs may have been locked, not counted yet, or
still waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import retention
from pgsched.db.queries.leader.retention import BEGINNING, LockedRuns, Rules

AGAIN_S = 3600.0
OWN = -1.0  # the key of the position among the runs that say themselves how long they are kept
PAUSE_FACTOR = 2.0  # pause between two batches, as a multiple of the time of a batch
Keep = Callable[[list[Row]], object]


class Pruner:
    """Position of one process among the ended runs.

    `keep_rows`: called with the rows of a batch before their deletion is committed.
    `more`: the last batch was a full one.
    """

    def __init__(self, keep_rows: Keep | None = None) -> None:
        self.more = False
        self.picked: LockedRuns | None = None  # picked by the batch that was begun last
        self._keep_rows = keep_rows
        # by retention time: (end, id) of the last run that was read, because many runs may have ended at one instant;
        # at OWN it is the end of the run's own retention
        self._positions: dict[float, tuple[datetime, int]] = {}
        self._previous_positions = self._positions
        self._version: str | None = None
        self._again_at = 0.0
        self._longest_s: float | None = None

    def prune_batch(self, conn: Connection[Any], n: int, set_aside_ids: Sequence[int] = ()) -> int:
        """Delete those of the next `n` ended runs that may go, in the caller's transaction; return how many.

        Runs in `set_aside_ids` stay.
        """
        rules = retention.rules(conn)
        self._longest_s, now = max(rules.keeps_s), time.monotonic()
        if rules.version != self._version or now >= self._again_at:
            self._positions = {}
            self._version, self._again_at = rules.version, now + AGAIN_S
        gone, self._previous_positions = 0, dict(self._positions)
        self.more, self.picked = False, None
        gone += self._own_batch(conn, rules, n, set_aside_ids)
        for keep_s in rules.keeps_s:
            if self.more:
                break
            gone += self._batch(conn, rules, keep_s, n, set_aside_ids)
        return gone

    def restore_position(self) -> None:
        """Go back to the position before the last `prune_batch`: its transaction failed, and its runs still exist."""
        self._positions = self._previous_positions

    def restart(self) -> None:
        """Read everything again: a run that was set aside may be deleted now."""
        self._positions = {}

    def tidy(self, conn: Connection[Any], n: int, keep_workers_s: float = retention.WORKERS_KEPT_S) -> int:
        """Delete other rows that have expired, in the caller's transaction.

        Returns how many keys or workers were deleted, whichever is more; there may be many of either.
        """
        longest_s = max(retention.rules(conn).keeps_s) if self._longest_s is None else self._longest_s
        return retention.delete_other_rows(conn, longest_s, n, keep_workers_s)

    def _own_batch(self, conn: Connection[Any], rules: Rules, n: int, set_aside_ids: Sequence[int]) -> int:
        """Delete one batch of the runs whose own retention is over; return how many."""
        until = newest_prunable_end(rules, 0)
        if until is None:
            return 0
        after, after_id = self._positions.get(OWN, (None, 0))
        picked = retention.lock_own(conn, BEGINNING if after is None else after.isoformat(), until, n, set_aside_ids,
                                    after_id=after_id, durable=self._keep_rows is not None)  # fmt: skip
        self.picked, self.more = picked, picked.read >= n
        gone = self._delete(conn, rules, picked) if picked.locked else 0
        if picked.last_at is not None and picked.last_id is not None:
            self._positions[OWN] = picked.last_at, picked.last_id
        return gone

    def _delete(self, conn: Connection[Any], rules: Rules, picked: LockedRuns) -> int:
        tell = self._keep_rows is not None
        gone, deleted_rows = retention.delete_runs(conn, picked.ids, archive=rules.archive, return_rows=tell)
        if self._keep_rows is not None and deleted_rows:
            self._keep_rows(deleted_rows)
        return gone

    def _batch(self, conn: Connection[Any], rules: Rules, keep_s: float, n: int, set_aside_ids: Sequence[int]) -> int:
        """Delete one batch of the runs that have reached the age of `keep_s` seconds; return how many."""
        until = newest_prunable_end(rules, keep_s)
        after, after_id = self._positions.get(keep_s, (None, 0))
        if until is None or (after is not None and until <= after):
            return 0
        tell, since = self._keep_rows is not None, BEGINNING if after is None else after.isoformat()
        # rows that were given to `keep_rows` must not come back when the server crashes
        picked = retention.lock_expired(conn, keep_s, since, until, n, set_aside_ids, after_id=after_id, durable=tell)
        self.picked, gone = picked, 0
        if picked.locked:
            gone = self._delete(conn, rules, picked)
        self.more = picked.read >= n
        if self.more and picked.last_at is not None and picked.last_id is not None:
            self._positions[keep_s] = picked.last_at, picked.last_id
        else:
            self._positions[keep_s] = until, 0
        return gone


def newest_prunable_end(rules: Rules, keep_s: float) -> datetime | None:
    """Return the newest end of runs that have reached this age and are counted; None if there can be none."""
    if rules.counted_until == BEGINNING:
        return None
    try:
        return min(rules.now - timedelta(seconds=keep_s), datetime.fromisoformat(rules.counted_until))
    except OverflowError:
        return None
