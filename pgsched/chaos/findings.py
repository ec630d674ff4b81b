"""What a fault reports for its history while it runs: figures, notes, outages, and settings of the checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pgsched.chaos.history import Figure, Outage


class Findings:
    """What one fault has reported so far.

    `settings` is added to the history's settings. `say` is called with each figure and note at once.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.figures: list[Figure] = []
        self.notes: list[str] = []
        self.outages: list[Outage] = []
        self.settings: dict[str, Any] = {}
        self._say = say

    def figure(self, name: str, value: float, bound: float | None = None) -> None:
        """Record a figure; a figure above its bound is a violation.

        Both numbers are in seconds where the name gives no other unit. A figure without a bound is only reported.
        """
        self.figures.append(Figure(name, float(value), bound))
        self._say(f"{name}: {value:.2f}" + ("" if bound is None else f" (bound {bound:g})"))

    def note(self, text: str) -> None:
        """Record and print what happens now."""
        self.notes.append(text)
        self._say(text)
