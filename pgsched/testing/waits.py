"""What recorded runs wait for, by the rules of sql/dependencies.sql, without a database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Ends = Mapping[int, str]  # the states of runs that have ended, by their ids


class Waits:
    """The runs that one run waits for: all of some, and one of others.

    `parents`: the ids of these runs.
    `failed`: the id of a parent that ended without success, if the run is to be cancelled for it.
    """

    def __init__(self, after: Iterable[int] | None, after_any: Iterable[int] | None, on_failure: str | None) -> None:
        self._after = frozenset(after or ())
        self._after_any = frozenset(after_any or ()) - self._after
        self.parents = self._after | self._after_any
        self._on_failure = on_failure or "cancel"
        self._patient: frozenset[int] = frozenset()  # parents whose failure is waited out, because the run was retried
        self._left: set[int]
        self._any_left: set[int]
        self._any_is_met: bool
        self.failed: int | None
        self.begin({})

    @property
    def are_met(self) -> bool:
        """Whether the run may start."""
        return not self._left and (not self._after_any or self._any_is_met)

    def note_end(self, parent: int, state: str) -> None:
        """Note that a parent has ended."""
        left = self._left if parent in self._left else self._any_left
        if parent not in left:
            return
        if state == "succeeded" or self._on_failure == "run_anyway":
            left.discard(parent)
            self._any_is_met = self._any_is_met or left is self._any_left
        elif self._on_failure == "cancel" and parent not in self._patient:
            left.discard(parent)
            if left is self._left or not (self._any_is_met or self._any_left):
                self.failed = parent

    def begin(self, ends: Ends) -> None:
        """Begin to wait. `ends`: the states of the parents that have ended already."""
        self._left, self._any_left, self._any_is_met = {*self._after}, {*self._after_any}, False
        self.failed = None
        for parent in self.parents & ends.keys():
            self.note_end(parent, ends[parent])

    def again(self, ends: Ends) -> Waits:
        """Return the waits after a retry: also for a parent that has failed, until it is retried and succeeds."""
        found = Waits(self._after, self._after_any, self._on_failure)
        failed = {parent for parent in self.parents if ends.get(parent, "succeeded") != "succeeded"}
        found._patient = self._patient | failed
        found.begin(ends)
        return found
