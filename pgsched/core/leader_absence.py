"""The rule: somebody led from a term's election until it resigned or was last seen, and nobody at other moments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

# A term is seen about once a second; a shorter silence than this is no absence.
SILENCE = timedelta(seconds=5)
Stretch = tuple[datetime, datetime]


def absences(terms: Iterable[Mapping[str, Any]], start: datetime, end: datetime) -> list[Stretch]:
    """The stretches of [start, end] without a leader, oldest first. Terms: elected_at, seen_at and resigned_at."""
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
