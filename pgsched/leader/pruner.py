"""The pruner: what the settings keep no longer goes, in small batches.

The rule: a run is read once for each length of time that anything is kept for, when it has just reached that age; so a
batch never steps over what it has deleted, nor over what others say is kept for longer. Once an hour, and when a
setting has changed, all is read again: for what was locked, or uncounted, or waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import retention
from pgsched.db.queries.leader.retention import BEGINNING, Picked, Rules

AGAIN_S = 3600.0
PAUSE_FACTOR = 2.0  # between two batches others get so many times as long as a batch takes
Keep = Callable[[list[Row]], object]


class Pruner:
    """Where one process is. `keep_rows` is given the rows of a batch before their deletion is committed.

    `more`: the last batch was a full one.
    """

    def __init__(self, keep_rows: Keep | None = None) -> None:
        self.more = False
        self.picked: Picked | None = None  # by the batch that was begun last
        self._keep_rows = keep_rows
        self._reached: dict[float, tuple[datetime, int]] = {}  # by end and number: many may have ended at one instant
        self._before = self._reached
        self._version: str | None = None
        self._again_at = 0.0
        self._longest_s: float | None = None

    def work(self, conn: Connection[Any], n: int, set_aside_ids: Sequence[int] = ()) -> int:
        """Delete what may go of the next `n` ended runs, in the caller's transaction; returns how many went. Those of
        `set_aside_ids` stay."""
        rules = retention.rules(conn)
        self._longest_s, now = max(rules.keeps_s), time.monotonic()
        if rules.version != self._version or now >= self._again_at:
            self._reached = {}
            self._version, self._again_at = rules.version, now + AGAIN_S
        gone, self._before = 0, dict(self._reached)
        self.more, self.picked = False, None
        for keep_s in rules.keeps_s:
            gone += self._batch(conn, rules, keep_s, n, set_aside_ids)
            if self.more:
                break
        return gone

    def undo(self) -> None:
        """The caller's transaction has failed: what the last `work` deleted is there again, of every length of time."""
        self._reached = self._before

    def again(self) -> None:
        """Read everything again: something that was set aside may go now."""
        self._reached = {}

    def tidy(self, conn: Connection[Any], n: int, keep_workers_s: float = retention.WORKERS_KEPT_S) -> int:
        """Drop what else has had its time, in the caller's transaction; returns how many of what there may be many."""
        longest_s = max(retention.rules(conn).keeps_s) if self._longest_s is None else self._longest_s
        return retention.tidy(conn, longest_s, n, keep_workers_s)

    def _batch(self, conn: Connection[Any], rules: Rules, keep_s: float, n: int, set_aside_ids: Sequence[int]) -> int:
        until = end_of(rules, keep_s)
        after, after_id = self._reached.get(keep_s, (None, 0))
        if until is None or (after is not None and until <= after):
            return 0
        tell, since = self._keep_rows is not None, BEGINNING if after is None else after.isoformat()
        # what is told to others must not come back when the server falls over
        picked = retention.pick(conn, keep_s, since, until, n, set_aside_ids, after_id=after_id, durable=tell)
        self.picked, gone = picked, 0
        if picked.locked:
            gone, deleted_rows = retention.delete(conn, picked.ids, archive=rules.archive, tell=tell)
            if self._keep_rows is not None and deleted_rows:
                self._keep_rows(deleted_rows)
        self.more = picked.read >= n
        if self.more and picked.last_at is not None and picked.last_id is not None:
            self._reached[keep_s] = picked.last_at, picked.last_id
        else:
            self._reached[keep_s] = until, 0
        return gone


def end_of(rules: Rules, keep_s: float) -> datetime | None:
    """The newest end of runs that have reached this age and are counted; None: there can be none."""
    if rules.counted_until == BEGINNING:
        return None
    try:
        return min(rules.now - timedelta(seconds=keep_s), datetime.fromisoformat(rules.counted_until))
    except OverflowError:
        return None
