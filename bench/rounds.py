"""Measure contestants in interleaved rounds, and compare their figures.

Invariant: each round measures all contestants in turn, and starts with the next one. So a disturbance of the machine
hits them alike. Two contestants are compared round by round, and the median of these ratios counts. A contestant that
cannot be installed, or fails, is named with the reason and takes no further part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import psycopg

from bench.adapter import Failed
from bench.contestants import PGSCHED, Contestant
from bench.install import Unavailable
from bench.report import Result, log_step, median, number

C = TypeVar("C")
T = TypeVar("T")
P = TypeVar("P", bound=Contestant)
# errors of one contestant, which must not stop the others
TROUBLE = (Failed, Unavailable, OSError, psycopg.Error)


def interleaved(
    what: str,
    contestants: Sequence[P],
    rounds: int,
    measure: Callable[[P], T],
    told: Callable[[T], str],
) -> tuple[dict[str, list[T]], dict[str, str]]:
    """Return the figures of each contestant's rounds by its name, and why the other contestants have none."""
    found: dict[str, list[T]] = {}
    absent: dict[str, str] = {}
    for turn in range(rounds):
        for one in in_turn(contestants, turn):
            if one.name in absent:
                continue
            try:
                got = measure(one)
            except TROUBLE as error:
                absent[one.name] = str(error) or type(error).__name__
                found.pop(one.name, None)
                log_step(f"{what}: {one.name} NOT MEASURED: {error}")
                continue
            found.setdefault(one.name, []).append(got)
            log_step(f"{what}, round {turn + 1} of {rounds}: {one.name} {told(got)}")
    return found, absent


def in_turn(every: Sequence[C], turn: int) -> list[C]:
    """Return all contestants, starting with the next one in each turn."""
    first = turn % max(1, len(every))
    return [*every[first:], *every[:first]]


def fill(result: Result, contestants: Sequence[P], absent: Mapping[str, str], row: Callable[[P], list[str]]) -> None:
    """Add a row for each contestant to the table: its figures, or why there are none.

    A note explains how rounds are summed up.
    """
    for one in contestants:
        gone = absent.get(one.name)
        result.rows.append(row(one) if gone is None else result.absent(one.label, gone))
    result.notes.append("medians of the rounds; ratios: the median of those within each round")


def ratios(found: Mapping[str, Sequence[T]], name: str, of: str, value: Callable[[T], float]) -> list[float]:
    """Return one contestant's figures as shares of another's in the same rounds; none if one was not measured."""
    pairs = zip(found.get(name, ()), found.get(of, ()), strict=False)
    return [value(one) / value(other) for one, other in pairs if value(other)]


def ratio(found: Mapping[str, Sequence[T]], name: str, of: str, value: Callable[[T], float]) -> float | None:
    """Return the median of `ratios`, or None."""
    every = ratios(found, name, of, value)
    return median(every) if every else None


def against(found: Mapping[str, Sequence[T]], peer: Contestant, value: Callable[[T], float]) -> str:
    """Return the cell with pgsched's figure as a share of this contestant's; a dash in pgsched's own row."""
    return number(ratio(found, PGSCHED.name, peer.name, value) if peer.name != PGSCHED.name else None, 2)


def middle(got: Sequence[T], value: Callable[[T], float]) -> float:
    """Return the median of a figure over the rounds."""
    return median([value(one) for one in got])


def each(got: Sequence[T], value: Callable[[T], float], digits: int = 0) -> str:
    """Return the cell with a figure of every round."""
    return " ".join(number(value(one), digits) for one in got)
