"""`Order`: the order in which a drain runs recorded runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from heapq import heappop, heappush

from pgsched.core.model import State
from pgsched.testing.clock import Clock
from pgsched.testing.found import Enqueued
from pgsched.testing.states import States

Key = tuple[datetime, int, datetime, int]


class Order:
    """The runs that a drain has yet to run: those that are due by their priority, then those that are due later.

    A run that has raised `Snooze` is tried again only after an attempt that ended otherwise: so each drain has an end.

    `is_meant`: whether the drain may run a run at all. `scheduled`: run what is due later, too.
    """

    def __init__(self, states: States, clock: Clock, is_meant: Callable[[Enqueued], bool], scheduled: bool) -> None:
        self._states = states
        self._clock = clock
        self._is_meant = is_meant
        self._keys: list[Key] = []
        self._seen = 0
        self._last: tuple[Enqueued, int] | None = None  # the run that was returned last, and its attempts until then
        self._snoozed: set[int] = set()
        self._startable = (State.QUEUED, State.SCHEDULED) if scheduled else (State.QUEUED,)
        self._begin()

    def next(self) -> Enqueued | None:
        """Return the run to run next, or None. Runs that were changed since the last call are looked at again."""
        self._note_last()
        if self._clock.now() != self._now:
            self._begin()
        changed, self._seen = self._states.changes[self._seen :], len(self._states.changes)
        for run_id in changed:
            self._add(run_id)
        while self._keys:
            key = heappop(self._keys)
            if self._key(key[-1]) == key:  # otherwise it was changed, and added again
                run = self._states.by_id[key[-1]]
                self._last = run, run.attempt
                return run
        return None

    def _note_last(self) -> None:
        """Note how the attempt of the run that was returned last has ended: one that was snoozed does not count."""
        if self._last is None:
            return
        run, attempts = self._last
        if run.attempt == attempts:
            self._snoozed.add(run.id)
            return
        snoozed, self._snoozed = self._snoozed, set()
        for run_id in snoozed:
            self._add(run_id)

    def _begin(self) -> None:
        self._now, self._seen = self._clock.now(), len(self._states.changes)
        self._snoozed = set()
        self._keys = []
        for run_id in self._states.by_id:
            self._add(run_id)

    def _add(self, run_id: int) -> None:
        key = self._key(run_id)
        if key is not None:
            heappush(self._keys, key)

    def _key(self, run_id: int) -> Key | None:
        """Return by what a run is ordered; None if it may not start."""
        run = self._states.by_id.get(run_id)
        if run is None or run.state not in self._startable or run_id in self._snoozed or not self._is_meant(run):
            return None
        return max(run.at, self._now), run.priority, run.at, run.id
