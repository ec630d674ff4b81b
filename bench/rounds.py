"""The rule: rounds go over all contestants in turn, so that what disturbs the machine disturbs them alike.

One that cannot be installed, or fails, is named with the reason and takes no further part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from bench.adapter import Failed
from bench.contestants import Contestant
from bench.install import Unavailable
from bench.report import progress

T = TypeVar("T")


def interleaved(
    what: str,
    contestants: Sequence[Contestant],
    rounds: int,
    measure: Callable[[Contestant], T],
    told: Callable[[T], str],
) -> tuple[dict[str, list[T]], dict[str, str]]:
    """The figures of each one's rounds by name, and why the others have none."""
    found: dict[str, list[T]] = {}
    absent: dict[str, str] = {}
    for turn in range(rounds):
        for one in contestants:
            if one.name in absent:
                continue
            try:
                got = measure(one)
            except (Failed, Unavailable) as error:
                absent[one.name] = str(error)
                found.pop(one.name, None)
                progress(f"{what}: {one.name} NOT MEASURED: {error}")
                continue
            found.setdefault(one.name, []).append(got)
            progress(f"{what}, round {turn + 1} of {rounds}: {one.name} {told(got)}")
    return found, absent
