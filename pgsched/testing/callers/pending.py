"""The runs of transactions that are still open: they are not enqueued yet, and a rollback takes them away."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pgsched.core.model import EnqueueResult
from pgsched.testing.callers.base import CallerTransaction
from pgsched.testing.callers.transactions import handle_of
from pgsched.testing.found import Enqueued


@dataclass(frozen=True, slots=True)
class Effect:
    """What an enqueue did, or a change of a run.

    `run`: the run that was made, met or changed. `how`: which of these.
    `undo`: takes it back: the run and its keys, or what was changed of a run that was there before.
    """

    run: Enqueued
    how: EnqueueResult
    undo: Callable[[], object]


class Pending:
    """The effects of transactions that are still open."""

    def __init__(self) -> None:
        self._effects: dict[CallerTransaction, list[tuple[int, Effect]]] = {}
        self._makers: dict[int, CallerTransaction] = {}
        self._numbers = itertools.count()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._effects)

    def __contains__(self, run: Enqueued) -> bool:
        """Check whether a run was made in a transaction that is still open."""
        return run.id in self._makers

    def add(self, transaction: CallerTransaction, effect: Effect) -> None:
        """Add an effect of an open transaction."""
        self._effects.setdefault(transaction, []).append((next(self._numbers), effect))
        if effect.how == "created":
            self._makers[effect.run.id] = transaction

    def settle(self) -> list[Effect]:
        """Return the effects of transactions that have committed since the last call; undo what was rolled back."""
        ended = [one for one in self._effects if one.state != "open"]
        effects = [(number, effect, one.state) for one in ended for number, effect in self._effects.pop(one)]
        effects.sort(key=lambda each: each[0])
        for _, effect, _ in effects:
            if effect.how == "created":
                del self._makers[effect.run.id]
        for _, effect, state in reversed(effects):
            if state == "rolled back":
                effect.undo()
        return [effect for _, effect, state in effects if state == "committed"]

    def runs_of(self, given: Any) -> list[Enqueued]:
        """Return the new runs of the transaction that is open on this connection or session."""
        handle = handle_of(given)
        return self._new_runs(lambda transaction: transaction.handle is handle)

    def runs(self) -> list[Enqueued]:
        """Return the new runs of all open transactions."""
        return self._new_runs(lambda _: True)

    def is_foreign(self, run: Enqueued, transaction: CallerTransaction | None) -> bool:
        """Check whether a run was made in an open transaction, and in another one than this."""
        maker = self._makers.get(run.id)
        return maker is not None and (transaction is None or transaction.handle is not maker.handle)

    def is_of(self, run: Enqueued, given: Any) -> bool:
        """Check whether a run was made in the transaction that is open on this connection or session."""
        maker = self._makers.get(run.id)
        return maker is not None and maker.handle is handle_of(given)

    def _new_runs(self, is_meant: Callable[[CallerTransaction], bool]) -> list[Enqueued]:
        found = [
            effect.run
            for transaction, effects in self._effects.items()
            if is_meant(transaction)
            for _, effect in effects
            if effect.how == "created"
        ]
        return sorted(found, key=lambda run: run.id)
