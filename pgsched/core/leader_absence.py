"""Find the times in which no process was leader.

Invariant: there is a leader from a term's election until it resigned or was last seen, and none at other moments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

# A leader is seen about once a second. A gap shorter than this does not count as an absence.
SILENCE = timedelta(seconds=5)
Stretch = tuple[datetime, datetime]


def absences(terms: Iterable[Mapping[str, Any]], start: datetime, end: datetime) -> list[Stretch]:
    """Return the parts of [start, end] without a leader, oldest first.

    `terms`: rows with elected_at, seen_at and resigned_at.
    """
    found: list[Stretch] = []
    led_until = start
    for term in sorted(terms, key=lambda term: term["elected_at"]):
        if term["elected_at"] >= end:
            break
        if term["elected_at"] - led_until > SILENCE:
            found.append((led_until, term["elected_at"]))
        led_until = max(led_until, term["resigned_at"] or term["seen_at"])
    if end - led_until > SILENCE:
        found.append((led_until, end))
    return found
