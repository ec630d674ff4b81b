"""Finds runs that wait for each other in a circle. Who makes an edge is refused one that he sees; two transactions, of
which neither sees the edges of the other, can close one all the same, and so can a retry.

The rule: a circle's oldest run, which waits for a later one, ends. What becomes of the others, their `on_failure` says.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from pgsched import log
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.runs import dependencies

logger = log.get("leader")
EVERY_S = 1.0
RUNS = 500  # that wait for a later one and are looked at in a round; hardly ever is there one
MOST = 10000  # runs that such a run waits for, itself or by way of others: no circle is looked for among more
LONGEST_S = 0.02  # after which no further run is looked at; the tick must have its turn
REST = 20.0  # times as long as it took, until the next look
Leading = Callable[[], AbstractContextManager[Connection[Any]]]


class Circles:
    """Where a leader is among the runs that wait for a later one. `at`: the monotonic instant of its next look."""

    def __init__(self) -> None:
        self.at = -math.inf
        self._after = 0

    def work(self, conn: Connection[Any], lead: Leading) -> int:
        """Look at the next runs; returns how many were ended, each in a transaction of its own."""
        began = time.monotonic()
        self.at = began + EVERY_S  # first: what fails must not be tried in every round
        last, run_ids = dependencies.backward(conn, self._after, RUNS)
        ended = 0
        for run_id in run_ids:
            self._after = run_id
            if dependencies.in_circle(conn, run_id, MOST):
                ended += self._end(lead, run_id)
            if time.monotonic() > began + LONGEST_S:
                break
        else:
            self._after = last
        took_s = time.monotonic() - began
        self.at = began + max(EVERY_S, took_s * REST)
        return ended

    def _end(self, lead: Leading, run_id: int) -> bool:
        with lead() as conn:
            ended = dependencies.end_circle(conn, run_id, MOST)
        if ended:
            logger.warning("a run that waited for itself, by way of others, has been ended", run=run_id)
        return ended
