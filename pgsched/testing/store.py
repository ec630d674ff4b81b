"""The recorded runs: what a database would keep of them, with keys, parents and open transactions."""

from __future__ import annotations

import json
import threading
from bisect import insort
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from pgsched.app.options import RETRYING
from pgsched.core.model import EnqueueResult, State
from pgsched.errors import InputError, LockTimeout
from pgsched.testing.callers.base import CallerTransaction
from pgsched.testing.callers.pending import Effect, Pending
from pgsched.testing.clock import Clock
from pgsched.testing.found import UNSTARTED, Enqueued
from pgsched.testing.key_texts import refuse_template, unique_key_of
from pgsched.testing.keys import Keys, apply_on_conflict
from pgsched.testing.order import Order
from pgsched.testing.states import States

COLUMNS = ("queue", "priority", "tags", "max_attempts", "idempotency_key", "concurrency_key", "keep", *RETRYING)
STARTABLE = (State.QUEUED, State.SCHEDULED)
LEAVING = (None, "return", "reject")  # policies under which the run that is met stays as it is


class Store:
    """The runs of a recorder.

    `runs`: those that are enqueued, oldest first.
    `pending`: those of transactions that are still open.
    `states`: the states of all of them.
    `lock`: held while they are changed.
    `look`: finds out which transactions have ended.
    """

    def __init__(self, clock: Clock, look: Callable[[], object]) -> None:
        self.runs: list[Enqueued] = []
        self.pending = Pending()
        self._clock = clock
        self._look = look
        self.keys = Keys(clock)
        self.states = States(clock, self.keys)
        self._last_id = 0
        self._taken = 0
        self.lock = threading.RLock()

    def put(
        self,
        each: Iterable[dict[str, Any]],
        transaction: CallerTransaction | None = None,
        slot: datetime | None = None,
    ) -> list[tuple[Enqueued, EnqueueResult]]:
        """Make a run of the values of each, or find the one that has its key: all or none.

        Returns the runs, and how each was found. Raises AlreadyEnqueued under the policy "reject", InputError for what
        the database refuses, and LockTimeout if an open transaction of another caller has the key.
        """
        with self.lock:
            effects: list[Effect] = []
            try:
                for values in each:
                    effects.append(self._make(values, transaction, slot))
            except BaseException:
                for effect in reversed(effects):
                    effect.undo()
                raise
            for effect in effects:
                if transaction is not None and effect.how != "repeated":
                    self.pending.add(transaction, effect)
                elif effect.how == "created":
                    self.runs.append(effect.run)
            return [(effect.run, effect.how) for effect in effects]

    def settle(self) -> None:
        """Take over the runs of transactions that have committed, and drop what was rolled back."""
        with self.lock:
            if not self.pending:
                return
            self._look()
            for effect in self.pending.settle():
                if effect.how == "created":
                    insort(self.runs, effect.run, key=lambda each: each.id)
                self.states.decide(effect.run)

    def change(self, run: Enqueued, transaction: CallerTransaction | None, change: Callable[[], object]) -> None:
        """Change a run by this function; a rollback of the caller's transaction or savepoint takes the change back.

        Those that wait for a run that was cancelled hear of it when the transaction has committed.
        """
        with self.lock:
            before = self.states.copy(run)
            change()
            if transaction is None:
                self.states.decide(run)
            else:
                self.states.changes.append(run.id)
                self.pending.add(transaction, Effect(run, "replaced", lambda: self.states.restore(run, before)))

    def decide(self, run: Enqueued) -> None:
        """Decide about a run whose attempt has ended, and about the runs that wait for it."""
        with self.lock:
            self.states.decide(run)

    def first(self, key: str) -> Enqueued | None:
        """Return the run that an idempotency key stands for, or None."""
        run = self.keys.first(key)
        return None if run is None or run in self.pending else run

    def find(self, run_id: int, given: Any) -> Enqueued | None:
        """Return a run, or None. `given`: the caller's connection, whose open transaction may have made the run."""
        run = self.states.by_id.get(run_id)
        if run is None or run not in self.pending:
            return run
        return run if given is not None and self.pending.is_of(run, given) else None

    def order(self, is_meant: Callable[[Enqueued], bool], scheduled: bool) -> Order:
        """Return the order in which to run these runs. `scheduled`: also those that are due later."""
        return Order(self.states, self._clock, lambda run: run not in self.pending and is_meant(run), scheduled)

    def take_startable(self) -> list[Enqueued]:
        """Return the runs that were made or changed since the last call, and that may begin."""
        changed, self._taken = self.states.changes[self._taken :], len(self.states.changes)
        by_id = self.states.by_id
        return [
            run for run_id in dict.fromkeys(changed) if (run := by_id.get(run_id)) is not None and self.may_begin(run)
        ]

    def may_begin(self, run: Enqueued) -> bool:
        """Check whether the first attempt of a run may begin, now or when it is due."""
        return run.state in STARTABLE and run not in self.pending and not self.keys.has_begun(run)

    # ---- one run

    def _make(self, values: dict[str, Any], transaction: CallerTransaction | None, slot: datetime | None) -> Effect:
        due = values["at"] or self._clock.now() + (values["delay"] or timedelta(0))
        expires_at = values.get("expires_at") or (None if values["expires"] is None else due + values["expires"])
        refuse_template(values)
        unique = unique_key_of(values)
        found = self.keys.find(values, unique, due)
        if found is not None and self.pending.is_foreign(found[0], transaction):
            raise LockTimeout(key_is_locked(values, unique, found[0]))
        if found is not None and found[1]:
            return Effect(found[0], "repeated", lambda: None)
        if expires_at is not None and expires_at <= due and (found is None or values["on_conflict"] not in LEAVING):
            raise InputError(f"expires_at: {expires_at} is not later than the run is due", "expires_at")
        if found is not None:
            return self._meet(found[0], values, due, expires_at)
        for parent in [*(values["after"] or ()), *(values["after_any"] or ())]:
            known = self.states.by_id.get(parent)
            if known is None or self.pending.is_foreign(known, transaction):
                raise InputError(f"parent_id: there is no run {parent} to wait for; it may have been pruned")
        given = {name: values[name] for name in COLUMNS if values[name] is not None}
        self._last_id += 1
        run = Enqueued(
            self._last_id, values["task"], json.loads(values["args"]), due, slot=slot, expires_at=expires_at,
            unique_key=unique, **given,
        )  # fmt: skip
        self.keys.keep(values, unique, due, run)
        self.states.add(run, values)
        return Effect(run, "created", lambda: self._forget(run))

    def _meet(self, run: Enqueued, values: dict[str, Any], due: datetime, expires_at: datetime | None) -> Effect:
        before = run.args, run.at, run.expires_at
        how = apply_on_conflict(run, values, due, expires_at, self.keys.made_at(run))
        self.keys.remember(values, run)
        if how == "replaced":
            self.states.decide(run)
        return Effect(run, how, lambda: self._undo_meeting(run, how, before, values["idempotency_key"]))

    def _forget(self, run: Enqueued) -> None:
        self.keys.forget(run)
        self.states.forget(run)

    def _undo_meeting(self, run: Enqueued, how: EnqueueResult, before: tuple[Any, ...], key: str | None) -> None:
        self.keys.forget_key(key)
        if how == "replaced" and run.state in UNSTARTED and run.id in self.states.by_id:
            run.args, run.at, run.expires_at = before
            self.states.decide(run)


def key_is_locked(values: dict[str, Any], unique: str | None, run: Enqueued) -> str:
    """Return what to say where a database would wait for another transaction."""
    name, key = ("idempotency_key", values["idempotency_key"]) if unique is None else ("unique_key", unique)
    return (
        f"{name}: {key!r} belongs to run {run.id} of a transaction that is still open."
        " A database would wait for its end: commit it, or roll it back, before you enqueue with the same key on"
        " another connection"
    )
