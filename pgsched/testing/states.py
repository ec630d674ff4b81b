"""The states of recorded runs: what waits, what may start, and what has ended, by the rules of the database.

Invariant: a run has the state that a row would have as soon as the leader has looked at it.
"""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from pgsched.core.model import State
from pgsched.errors import InputError
from pgsched.testing.clock import Clock
from pgsched.testing.found import UNSTARTED, Enqueued
from pgsched.testing.keys import Copy as KeysCopy
from pgsched.testing.keys import Keys
from pgsched.testing.waits import Waits

REVIVED = (State.DEAD, State.CANCELLED, State.MISSED, State.SKIPPED)
MOST_ATTEMPTS = 1000
Copy = tuple[Enqueued, Waits | None, KeysCopy]


class States:
    """The states of runs.

    `by_id`: the runs, also those of open transactions.
    `changes`: the ids of runs that were made or changed, in that order; it only grows.
    """

    def __init__(self, clock: Clock, keys: Keys) -> None:
        self.by_id: dict[int, Enqueued] = {}
        self.changes: list[int] = []
        self._clock = clock
        self._keys = keys
        self._waits: dict[int, Waits] = {}
        self._children: dict[int, list[int]] = {}
        clock.listeners.append(self._note_time)

    def add(self, run: Enqueued, values: dict[str, Any]) -> None:
        """Add a new run. `values`: as they were enqueued."""
        self.by_id[run.id] = run
        if values["after"] or values["after_any"]:
            waits = Waits(values["after"], values["after_any"], values["on_failure"])
            waits.begin(self._ends(waits))
            self._waits[run.id] = waits
            for parent in waits.parents:
                self._children.setdefault(parent, []).append(run.id)
        self.decide(run)

    def forget(self, run: Enqueued) -> None:
        """Forget a run that a rollback has taken away."""
        self.by_id.pop(run.id, None)
        self._waits.pop(run.id, None)

    def decide(self, run: Enqueued) -> None:
        """Decide about a run that was made or changed, and about the runs that wait for it."""
        left = [run]
        while left:
            one = left.pop()
            self._judge(one)
            self.changes.append(one.id)
            if one.is_open:
                continue
            for child in self._children.get(one.id, ()):
                waiting = self.by_id.get(child)
                if waiting is not None and waiting.state == State.WAITING:
                    self._waits[child].note_end(one.id, one.state)
                    left.append(waiting)

    def cancel(self, run: Enqueued, reason: str) -> None:
        """Cancel a run that has not started; `decide` then tells those that wait for it."""
        run.state, run.reason, run.finished_at = "cancelled", reason, self._clock.now()

    def retry(self, run: Enqueued, now: bool) -> None:
        """Revive a run. Raises InputError for one that succeeded or has not ended, or whose unique key is taken."""
        if run.state == State.QUEUED:
            return
        if run.state not in REVIVED:
            raise InputError(
                f"run {run.id} is {run.state}: only dead, cancelled, missed and skipped runs can be retried"
            )
        self._keys.revive(run)
        if now or run.attempt:
            self._waits.pop(run.id, None)
        elif run.id in self._waits:
            self._waits[run.id] = self._waits[run.id].again(self._ends(self._waits[run.id]))
        run.state, run.at, run.finished_at, run.expires_at = "queued", self._clock.now(), None, None
        run.max_attempts = min(MOST_ATTEMPTS, max(run.max_attempts, run.attempt + 1))
        run.reason = None
        self._judge(run)

    def update(self, run: Enqueued, given: dict[str, Any]) -> None:
        """Change the given ones of priority, at and queue. Raises InputError for a run that has started."""
        if run.state not in UNSTARTED:
            state = f"is {run.state}" if run.is_open else f"has ended ({run.state})"
            raise InputError(f"state: run {run.id} {state}: only a run that has not started can be changed", "state")
        at = given.get("at")
        if at is not None and run.expires_at is not None and not self._keys.has_begun(run):
            run.expires_at += max(at, self._clock.now()) - max(self._keys.made_at(run), run.at)
        for name, value in given.items():
            setattr(run, name, value)
        self._judge(run)

    def copy(self, run: Enqueued) -> Copy:
        """Return what `cancel`, `retry` and `update` change of a run."""
        return replace(run), self._waits.get(run.id), self._keys.copy(run)

    def restore(self, run: Enqueued, before: Copy) -> None:
        """Take back what was changed of a run, unless an attempt of it has begun since then."""
        old, waits, keys = before
        if run.attempt != old.attempt or run.state == State.RUNNING or run.id not in self.by_id:
            return
        for field in fields(run):
            setattr(run, field.name, getattr(old, field.name))
        self._keys.restore(run, keys)
        if waits is not None:
            for parent, state in self._ends(waits).items():  # a run that was cancelled did not hear of them
                waits.note_end(parent, state)
            self._waits[run.id] = waits
        self.decide(run)

    def _judge(self, run: Enqueued) -> None:
        """Give a run that has not started, or is to start again, the state that it is to have by now."""
        if run.state not in UNSTARTED:
            return
        now, waits = self._clock.now(), self._waits.get(run.id)
        if run.expires_at is not None and run.expires_at <= now and not self._keys.has_begun(run):
            run.state, run.finished_at = "missed", now
            run.reason = f"expired: not started by {run.expires_at}"
        elif waits is not None and waits.failed is not None:
            parent = self.by_id[waits.failed]
            run.state, run.finished_at = "cancelled", now
            run.reason = f"dependency: run {parent.id} ({parent.task}) is {parent.state}"
        elif waits is not None and not waits.are_met:
            run.state = "waiting"
        else:
            run.state = "scheduled" if run.at > now else "queued"

    def _note_time(self, _: datetime, now: datetime) -> None:
        for run in [*self.by_id.values()]:
            is_due = run.state == State.SCHEDULED and run.at <= now
            if is_due or (run.expires_at is not None and run.expires_at <= now and run.state in UNSTARTED):
                self.decide(run)

    def _ends(self, waits: Waits) -> dict[int, str]:
        """Return the states of the parents that have ended."""
        parents = [self.by_id[parent] for parent in waits.parents if parent in self.by_id]
        return {run.id: run.state for run in parents if not run.is_open}
