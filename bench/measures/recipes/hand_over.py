"""How long it takes from a release to the next holder.

Invariant: the time is from the instant in which the release is called to the instant in which the next holder's call
returns. Only those count whose next holder had asked before that, and that come after as many grants as there are
contenders: until then the line forms. No two held the lock at one time, and each grant had
a higher number than the one before it, or the round fails. A holder keeps the lock for HOLD_MS, so that the one before
it is in line again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from bench.adapter import Failed
from bench.measures.recipes.field import Coordinator, Field, begin, fresh_name, programs
from bench.report import Result, median, number, quantile
from bench.rounds import each, fill, interleaved, middle

HOLD_MS = 10
MOST_PROCESSES = 10
Turn = tuple[int, int, int, int]  # asked, granted and given back at which ns; the number of the grant


@dataclass(frozen=True)
class HandOver:
    """Times in milliseconds, and how many there were."""

    p50: float
    p99: float
    count: int


def hand_over(
    field: Field, contestants: Sequence[Coordinator], contenders: Sequence[int], seconds: int, rounds: int
) -> Result:
    """Measure in interleaved rounds; report medians."""
    found, absent = interleaved(
        "hand-over",
        contestants,
        rounds,
        lambda one: [measure(field, one, count, seconds) for count in contenders],
        lambda got: "; ".join(f"p50 {one.p50:.2f} ms, p99 {one.p99:.2f} ms" for one in got),
    )
    columns = [""]
    for count in contenders:
        columns += [f"{count} contenders, p50: ms", "rounds", "p99: ms", "rounds"]
    title = f"From a release to the next holder; each holds for {HOLD_MS} ms"
    result = Result("recipes-hand-over", title, columns)
    data = {name: [[asdict(one) for one in got] for got in every] for name, every in found.items()}
    result.data = {"contestants": data, "absent": absent}

    def row(one: Coordinator) -> list[str]:
        got, cells = found[one.name], [one.label]
        for i in range(len(contenders)):
            for value in (lambda of, i=i: of[i].p50, lambda of, i=i: of[i].p99):
                cells += [number(middle(got, value), 2), each(got, value, 2)]
        return cells

    fill(result, contestants, absent, row)
    result.notes.append(f"up to {MOST_PROCESSES} processes, with the same number of threads each")
    return result


def measure(field: Field, one: Coordinator, contenders: int, seconds: int) -> HandOver:
    """Measure one round of one contestant."""
    processes = min(contenders, MOST_PROCESSES)
    settings = {"name": fresh_name(), "threads": contenders // processes, "seconds": seconds, "hold_ms": HOLD_MS}
    with field.place(one) as dsn, programs(one, dsn, [("contend", settings)] * processes) as started:
        began = begin(started)
        turns = sorted(
            (tuple(turn) for process in started for turn in process.answer()["turns"]), key=lambda turn: turn[1]
        )
    return times(one.name, turns, contenders, began + seconds * 10**9)


def times(name: str, turns: Sequence[Turn], contenders: int, last: int) -> HandOver:
    """Return the times between these turns, which are in the order of their grants; check that they were exclusive.

    `last`: the instant from which on nobody gets in line any more.
    """
    took = []
    for place, ((_, _, given_back, before), (asked, granted, _, grant)) in enumerate(pairwise(turns), 2):
        if granted < given_back:
            raise Failed(
                f"{name}: grant {grant} began {(given_back - granted) / 1e6:.3f} ms before the end of {before}"
            )
        if grant and grant <= before:
            raise Failed(f"{name}: grant {grant} came after grant {before}")
        if asked < given_back and place > contenders and granted <= last:
            took.append((granted - given_back) / 1e6)
    if not took:
        raise Failed(f"{name}: nobody waited for the lock")
    return HandOver(median(took), quantile(took, 0.99), len(took))
