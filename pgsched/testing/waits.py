"""What recorded runs wait for, by the rules of sql/dependencies.sql, without a database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

States = Mapping[int, str]
OTHER_ENDS = ("dead", "cancelled")


class Waits:
    """The runs that one run waits for: all of some, and one of others.

    `states` in the methods are those of all runs, by their ids.
    """

    def __init__(self, after: Iterable[int] | None, after_any: Iterable[int] | None, on_failure: str | None) -> None:
        self._all_of = {*(after or ())}
        self._any_of = {*(after_any or ())} - self._all_of
        self._on_failure = on_failure or "cancel"

    def are_met(self, states: States) -> bool:
        """Check whether the run may start."""
        is_enough = OTHER_ENDS if self._on_failure == "run_anyway" else ()
        met = {parent for parent in self._all_of | self._any_of if states.get(parent) in ("succeeded", *is_enough)}
        return self._all_of <= met and (not self._any_of or bool(self._any_of & met))

    def are_in_vain(self, states: States) -> bool:
        """Check whether the run is to be cancelled, because its parents ended without success."""
        failed = {parent for parent in self._all_of | self._any_of if states.get(parent) in OTHER_ENDS}
        in_vain = bool(self._all_of & failed) or (bool(self._any_of) and self._any_of <= failed)
        return in_vain and self._on_failure == "cancel"
