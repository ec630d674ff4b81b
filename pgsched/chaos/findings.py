"""What a fault found while it ran, for its history: figures, notes, outages, and settings of the checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pgsched.chaos.history import Figure, Outage


class Findings:
    """`settings`: what goes into the history's settings besides. `say`: is told each figure and note at once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.figures: list[Figure] = []
        self.notes: list[str] = []
        self.outages: list[Outage] = []
        self.settings: dict[str, Any] = {}
        self._say = say

    def figure(self, name: str, value: float, bound: float | None = None) -> None:
        """Record a figure (seconds where the name does not say otherwise); above its bound it is a violation."""
        self.figures.append(Figure(name, float(value), bound))
        self._say(f"{name}: {value:.2f}" + ("" if bound is None else f" (bound {bound:g})"))

    def note(self, text: str) -> None:
        """Say what happens now."""
        self.notes.append(text)
        self._say(text)
