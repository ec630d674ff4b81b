"""Many that ask for the same take turns: each waits so much longer that together they ask as often as a few would."""

from __future__ import annotations

FEW = 20  # who ask as often as they are told


def slower(count: int, most: float) -> float:
    """By what factor, `most` at most, each of `count` waits longer between two questions."""
    return min(max(count / FEW, 1.0), most)
