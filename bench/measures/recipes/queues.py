"""How many items go through a queue in a second.

Invariant: each item was taken exactly once. `one process`: it puts an item and takes it, in turns, so that the queue is
short. `two put, two take`: four processes, from the common start to the last item that was taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bench.adapter import Failed
from bench.measures.recipes.field import Coordinator, Field, begin, fresh_name, programs, reports
from bench.report import Result, number
from bench.rounds import against, each, fill, interleaved, middle

SIDES = 2  # processes that put, and as many that take


@dataclass(frozen=True)
class Through:
    """Items per second."""

    alone: float
    together: float


def alone(got: Through) -> float:
    """Return the rate of one process."""
    return got.alone


def together(got: Through) -> float:
    """Return the rate of four processes."""
    return got.together


def queues(field: Field, contestants: Sequence[Coordinator], n: int, seconds: int, rounds: int) -> Result:
    """Measure in interleaved rounds; report medians, and ratios within each round."""
    found, absent = interleaved(
        "queue",
        contestants,
        rounds,
        lambda one: Through(put_and_take(field, one, seconds), through(field, one, n)),
        lambda got: f"one process {got.alone:,.0f}/s, four {got.together:,.0f}/s",
    )
    columns = ["", "one process: items/s", "rounds", "pgsched / this one", "two put, two take: items/s", "rounds",
               "pgsched / this one"]  # fmt: skip
    result = Result("recipes-queue", "Items that are put into a queue, and taken for good", columns)
    result.data = {"contestants": {name: [asdict(one) for one in got] for name, got in found.items()}, "absent": absent}

    def row(one: Coordinator) -> list[str]:
        got, cells = found[one.name], [one.label]
        for value in (alone, together):
            cells += [number(middle(got, value)), each(got, value), against(found, one, value)]
        return cells

    fill(result, contestants, absent, row)
    result.notes.append(field.durability())
    return result


def put_and_take(field: Field, one: Coordinator, seconds: int) -> float:
    """Return how many items one process puts and takes in a second."""
    settings: dict[str, object] = {"name": fresh_name(), "seconds": seconds}
    with field.place(one) as dsn, programs(one, dsn, [("alternate", settings)]) as processes:
        [got] = reports(processes)
        return float(got["n"] / got["seconds"])


def through(field: Field, one: Coordinator, n: int) -> float:
    """Return how many items a second go from two processes to two others."""
    name, share = fresh_name(), n // SIDES
    put = [("produce", {"name": name, "n": share, "first": i * share}) for i in range(SIDES)]
    take: list[tuple[str, dict[str, object]]] = [("consume", {"name": name})] * SIDES
    with field.place(one) as dsn, programs(one, dsn, [*put, *take]) as processes:
        began = begin(processes)
        got = [process.answer() for process in processes]
    taken = [item for report in got for item in report.get("items", ())]
    check_once(one.name, taken, share * SIDES)
    return float(share * SIDES / ((max(report["ended"] for report in got) - began) / 1e9))


def check_once(name: str, taken: Sequence[int], n: int) -> None:
    """Raise Failed unless each item was taken exactly once."""
    times = Counter(taken)
    wrong = [f"item {item} {times[item]} times" for item in range(n) if times[item] != 1]
    if wrong or len(taken) != n:
        raise Failed(f"{name}: of {n} items, {len(taken)} were taken: {', '.join(wrong[:5])}")
