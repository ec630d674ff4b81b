"""Many that ask for the same take turns: together they ask no more often than a few of them would."""

from __future__ import annotations

FEW = 20  # who ask as often as they are told


def slower(count: int, most: float) -> float:
    """By what factor, `most` at most, each of `count` waits longer between two questions."""
    return min(max(count / FEW, 1.0), most)
