"""Find runs that wait for each other in a circle, and end the oldest run of each circle.

A transaction that would close a circle is refused if it sees the other edges. Two transactions that do not see each
other's edges can still close one together, and so can a retry.

Invariant: a circle's oldest run, which waits for a later one, ends. The other runs then follow their `on_failure`.

A look takes LONGEST_S, and each of its statements reads at most EDGES edges. A run that waits for many others is put
off: every other look continues with one of those runs, from where the last look stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import islice, pairwise
from typing import Any

from pgsched import log
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.runs import dependencies
from pgsched.db.queries.runs.dependencies import Link

logger = log.get("leader")
EVERY_S = 1.0
RUNS = 100  # runs that wait for a later one and that one look reads; there is hardly ever one
EDGES = 200  # edges that one statement reads
STEPS = 2  # statements for one run before it is put off
MAX_LARGE_RUNS = 1000  # runs that are put off at most; further ones are looked at again later
MAX_WALK_RUNS = 200_000  # runs that one run waits for, directly or not: among more, no circle is searched
LONGEST_S = 0.01  # no further statement is sent after this time: the tick must have its turn
PAUSE_FACTOR = 20.0  # pause until the next look, as a multiple of the time that the last one took
Leading = Callable[[], AbstractContextManager[Connection[Any]]]


class Walk:
    """A search from one run to the runs that it waits for and that are not older, some edges at a time.

    `finished`: no run is left to read, or there are too many.
    `circle`: the edges of the circle that was found, the closing edge first.
    """

    def __init__(self, run_id: int) -> None:
        self.run_id = run_id
        self.finished = False
        self.circle: list[Link] = []
        self._waiter_of = {run_id: run_id}  # by run: one run that waits for it
        self._todo: dict[int, None] = {run_id: None}  # runs whose edges are not all read
        self._resume_behind: Link | None = None  # the run that was read in part, and the parent behind which to go on

    def read_edges(self, conn: Connection[Any], edges: int) -> None:
        """Read at most `edges` further edges."""
        first = [] if self._resume_behind is None else [self._resume_behind.run_id]
        run_ids = first + [run_id for run_id in islice(self._todo, edges) if run_id not in first]
        after = self.run_id - 1 if self._resume_behind is None else self._resume_behind.parent_id
        found = dependencies.edges_above(conn, run_ids, after, self.run_id, edges)
        for link in found:
            if not link.open:
                continue
            if link.parent_id == self.run_id:
                self.circle, self.finished = self._trace_circle(link), True
                return
            if link.parent_id not in self._waiter_of:
                self._waiter_of[link.parent_id] = link.run_id
                self._todo[link.parent_id] = None
        self._note_read(run_ids, found, whole=len(found) < edges)
        self.finished = not self._todo or len(self._waiter_of) > MAX_WALK_RUNS
        if self._todo and self.finished:
            logger.warning("no circle is looked for among so many runs", run=self.run_id, runs=len(self._waiter_of))

    def _note_read(self, run_ids: list[int], found: list[Link], *, whole: bool) -> None:
        """Note which runs are read to their last edge; if the answer is not whole, the last run may have more edges."""
        self._resume_behind = None
        read = {before.run_id for before, link in pairwise(found) if before.run_id != link.run_id}
        if whole:
            read |= {*run_ids, *(link.parent_id for link in found if link.open)}
        elif found[-1].place:
            self._resume_behind = found[-1]
            read |= {*run_ids[: self._resume_behind.place - 1]}
        else:
            read |= {*run_ids}
        for run_id in read:
            self._todo.pop(run_id, None)

    def _trace_circle(self, last: Link) -> list[Link]:
        """Return the edges of the circle, from the closing edge back to the first run."""
        way, run_id = [last], last.run_id
        while run_id != self.run_id:
            way.append(Link(self._waiter_of[run_id], run_id))
            run_id = self._waiter_of[run_id]
        return way


class CircleSearch:
    """Position of a leader among the runs that wait for a later one. `at`: monotonic instant of the next look."""

    def __init__(self) -> None:
        self.at = -math.inf
        self._after = 0
        self._large: dict[int, Walk | None] = {}  # runs that were put off; only the first one's walk has begun
        self._large_next = False

    def look(self, conn: Connection[Any], lead: Leading) -> int:
        """Look at the next runs; return how many were ended, each in a transaction of its own."""
        began = time.monotonic()
        self.at = began + EVERY_S  # set before the work: a look that fails must not be tried in every round
        until = began + LONGEST_S
        large, self._large_next = self._large_next and bool(self._large), not self._large_next
        ended = self._go_on(conn, lead, until) if large else self._look(conn, lead, until)
        took_s = time.monotonic() - began
        self.at = began + max(EVERY_S, took_s * PAUSE_FACTOR)
        return ended

    def _look(self, conn: Connection[Any], lead: Leading, until: float) -> int:
        """Look at the next runs that wait for a later one; return how many were ended."""
        last, run_ids = dependencies.find_backward_waits(conn, self._after, RUNS)
        ended = 0
        for run_id in run_ids:
            self._after = run_id
            if run_id not in self._large:
                walk, steps = Walk(run_id), 0
                while not walk.finished and steps < STEPS:
                    walk.read_edges(conn, EDGES)
                    steps += 1
                if not walk.finished and len(self._large) < MAX_LARGE_RUNS:
                    self._large[run_id] = None
                ended += self._end(lead, walk)
            if time.monotonic() > until:
                break
        else:
            self._after = last
        return ended

    def _go_on(self, conn: Connection[Any], lead: Leading, until: float) -> int:
        """Continue the walk of one run that waits for many; return how many runs were ended."""
        run_id, begun = next(iter(self._large.items()))
        walk = self._large[run_id] = begun or Walk(run_id)
        while not walk.finished:
            walk.read_edges(conn, EDGES)
            if time.monotonic() > until:
                break
        if not walk.finished:
            return 0
        del self._large[run_id]
        return self._end(lead, walk)

    def _end(self, lead: Leading, walk: Walk) -> int:
        """End the oldest run of the circle that the walk has found, if any; return how many runs were ended."""
        if not walk.circle:
            return 0
        with lead() as conn:
            ended = dependencies.end_circle(conn, walk.circle)
        if ended:
            logger.warning("a run that waited for itself, by way of others, has been ended", run=walk.run_id)
        return int(ended)
