"""How often a lock is acquired and released in a second, while nobody else wants it.

Invariant: each process has a lock of its own, and one thread. The number of each grant was higher than that of the
grant before it, and all are counted between two instants that all processes share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

from bench.measures.recipes.field import COMMITS, Coordinator, Field, fresh_name, programs, reports
from bench.report import Result, number
from bench.rounds import against, each, fill, interleaved, middle

PROCESSES = (1, 4)
Rates = dict[int, float]


def pairs(field: Field, contestants: Sequence[Coordinator], seconds: int, rounds: int) -> Result:
    """Measure in interleaved rounds; report medians, and ratios within each round."""
    found, absent = interleaved(
        "acquire and release",
        contestants,
        rounds,
        lambda one: {count: rate(field, one, count, seconds) for count in PROCESSES},
        lambda got: ", ".join(f"{count} process(es) {one:,.0f}/s" for count, one in got.items()),
    )
    columns = [""]
    for count in PROCESSES:
        columns += [f"{count} process{'es' if count > 1 else ''}: pairs/s", "rounds", "pgsched / this one"]
    result = Result(
        "recipes", "Acquire and release of a lock that nobody else wants; each process has its own", columns
    )
    result.data = {"contestants": found, "absent": absent}

    def row(one: Coordinator) -> list[str]:
        got, cells = found[one.name], [one.label]
        for count in PROCESSES:
            cells += [
                number(middle(got, rate_of(count))),
                each(got, rate_of(count)),
                against(found, one, rate_of(count)),
            ]
        return cells

    fill(result, contestants, absent, row)
    result.notes.append(field.durability())
    if COMMITS in contestants:
        result.notes.append(
            f"{COMMITS.label}: what a lock in PostgreSQL costs at least, if grant and release are on disk"
        )
    return result


def rate_of(count: int) -> Callable[[Rates], float]:
    """Return the function that finds the rate of this many processes."""
    return itemgetter(count)


def rate(field: Field, one: Coordinator, count: int, seconds: int) -> float:
    """Return how many pairs this many processes make in a second together."""
    with field.place(one) as dsn:
        name = fresh_name()
        verbs = [("pairs", {"name": f"{name}-{i}", "seconds": seconds}) for i in range(count)]
        with programs(one, dsn, verbs) as processes:
            return float(sum(got["n"] / got["seconds"] for got in reports(processes)))
