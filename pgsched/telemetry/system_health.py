"""Problems of the whole system, as this process judged them last: the same judgement as `pgsched status`.

Invariant: a process judges while it leads, or while no process does; otherwise it reports nothing. An old judgement is
not used, and a leader that cannot judge reports that. An error while judging stops nothing else.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from pgsched import log
from pgsched.config import find_backlog_limits
from pgsched.core.problems import KINDS, Patience, Problem, find_problems
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import first_line
from pgsched.db.queries.reports.facts import read_facts
from pgsched.telemetry.metrics import Sample

logger = log.get("metrics")
STALE_S, UNLED_STALE_S = 60.0, 15.0  # for a leader, which judges every 15 s or less often, and for others, every 5 s


def judge_system(conn: Connection[Any]) -> list[Problem]:
    """Return the problems of this moment, without the notes."""
    with conn.transaction():
        conn.execute("SET LOCAL enable_seqscan = off; SET LOCAL jit = off")
        facts = read_facts(conn)
    return [one for one in find_problems(facts, Patience(*find_backlog_limits())) if not one.note]


class SystemHealth:
    """The last judgement of one process. `leads`: returns whether this process leads."""

    def __init__(self, leads: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._leads = leads
        self._clock = clock
        self._found: list[Problem] = []
        self._at: float | None = None
        self._tried_at: float | None = None  # when it was first tried
        self._as_leader = False
        self._stale_s = STALE_S
        self._judged = False  # the last look succeeded

    def look(self, conn: Connection[Any]) -> None:
        """Judge now; an error is logged, and the last judgement stays."""
        leads = self._leads()
        self._tried_at = self._tried_at or self._clock()
        self._judged = False
        try:
            self._found, self._as_leader = judge_system(conn), leads
        except Exception as error:
            logger.warning("the system's health cannot be judged", error=log.redact(first_line(error)))
            return
        self._at, self._judged = self._clock(), True

    def pause(self, seconds: float) -> None:
        """Note that this leader judges next in so many seconds.

        A judgement counts for two such pauses, so that a leader on schedule knows what it reports. After a look that
        failed the last judgement becomes old as soon as before.
        """
        if self._judged:
            self._stale_s = max(STALE_S, 2 * seconds)

    def lines(self) -> list[str]:
        """Return the lines for /readyz: one for each problem."""
        since = self._tried_at if self._at is None else self._at
        if since is None or (self._as_leader and not self._leads()):
            return []
        if self._old():
            return [f"unknown: not judged for {self._clock() - since:.0f} s"] if self._leads() else []
        return [one.text for one in self._found]

    def samples(self) -> Iterator[Sample]:
        """Yield the number of problems of every kind, so that an alert finds a series; a source of a Meter."""
        if self._at is None or self._old() or (self._as_leader and not self._leads()):
            return
        counts = Counter(one.kind for one in self._found)
        for kind in KINDS:
            yield "pgsched_problems", (kind,), counts[kind]

    def _old(self) -> bool:
        return self._at is None or self._clock() - self._at > (self._stale_s if self._leads() else UNLED_STALE_S)
