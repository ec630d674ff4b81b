"""Pair the slots of a job with the starts that another scheduler logged.

A start belongs to the slot before it, if it is not later than the tolerance; or to the next one, where it is a moment
ahead of it. Of several starts for one slot one is paired, and the others are the other scheduler's alone.

Invariant: each slot and each start is counted once, or lies outside of the time that is compared.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime

EARLY_S = 2.0  # clocks of two hosts differ
SHOWN = 100  # instants of a difference that are kept


@dataclass(slots=True)
class Comparison:
    """What a comparison found of one job, or of several with the same command.

    `matched`: slots with a start.
    `only_here`, `only_there`: slots without a start, and starts without a slot.
    `decided_late`: matched slots that the leader decided late: it would have run one of several, or none.
    `here`, `there`: the first of these instants.
    `lateness_p50_s`, `lateness_max_s`: from the slot to the start, of matched slots.
    `begin`, `end`: the time that is compared; None: there is none, as the log has no start of it and no end.
    """

    jobs: tuple[str, ...]
    matched: int = 0
    only_here: int = 0
    only_there: int = 0
    decided_late: int = 0
    lateness_p50_s: float | None = None
    lateness_max_s: float | None = None
    here: list[datetime] = field(default_factory=list)
    there: list[datetime] = field(default_factory=list)
    begin: datetime | None = None
    end: datetime | None = None

    @property
    def differs(self) -> bool:
        """Whether there is a slot or a start without the other."""
        return self.only_here + self.only_there > 0


@dataclass(frozen=True, slots=True)
class ComparedTime:
    """The time that is compared, in seconds since 1970, and how late a start may be."""

    begin_s: float
    end_s: float
    tolerance_s: float


def instant(seconds: float) -> datetime:
    """Return the instant of seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def compare(
    jobs: tuple[str, ...],
    slots: array[float],
    late: set[float],
    starts: array[float],
    due: array[float],
    span: ComparedTime,
) -> Comparison:
    """Pair slots and starts.

    `slots`: sorted, also those a tolerance before the span. `late`: those that were decided late.
    `starts`, `due`: when each start was, and the time by which its slot is found; sorted by `due`.
    """
    found = Comparison(jobs, begin=instant(span.begin_s), end=instant(span.end_s))
    used: dict[int, int] = {}  # by the first place of an instant, how many of its slots are paired
    lateness = array("d")
    for at_s, due_s in zip(starts, due, strict=True):
        place = place_of(slots, due_s, span.tolerance_s)
        if place is not None and used.get(place, 0) < bisect_right(slots, slots[place]) - place:
            used[place] = used.get(place, 0) + 1
            if span.begin_s <= slots[place] <= span.end_s:
                found.matched += 1
                found.decided_late += slots[place] in late
                lateness.append(at_s - slots[place])
        elif span.begin_s <= due_s <= span.end_s:
            found.only_there += 1
            if len(found.there) < SHOWN:
                found.there.append(instant(at_s))
    place = bisect_left(slots, span.begin_s)
    last_s = span.end_s - span.tolerance_s  # later ones may still start
    while place < len(slots) and slots[place] <= last_s:
        behind = bisect_right(slots, slots[place])
        missing = behind - place - used.get(place, 0)
        found.only_here += missing
        found.here += [instant(slots[place])] * min(missing, SHOWN - len(found.here))
        place = behind
    if lateness:
        ordered = sorted(lateness)
        found.lateness_p50_s, found.lateness_max_s = ordered[(len(ordered) - 1) // 2], ordered[-1]
    return found


def place_of(slots: array[float], due_s: float, tolerance_s: float) -> int | None:
    """Return the first place of the instant to whose slot a start belongs; None: to none."""
    behind = bisect_right(slots, due_s)
    before_s = slots[behind - 1] if behind else None
    after_s = slots[behind] if behind < len(slots) else None
    gap_s = after_s - before_s if before_s is not None and after_s is not None else 4 * EARLY_S
    if after_s is not None and after_s - due_s <= min(EARLY_S, gap_s / 4):
        return behind
    if before_s is not None and due_s - before_s <= tolerance_s:
        return bisect_left(slots, before_s)
    return None
