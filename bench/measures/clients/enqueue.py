"""`enqueue`: jobs per second, one by one on one connection, and many by each library's bulk call.

Invariant: no worker runs. The clock covers only the library's calls: the connection is open, and single enqueues are
warmed up. Afterwards the database must hold every job. The raw ceiling is a bare INSERT, and a bare COPY.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import psycopg

from bench.adapter import Failed, call
from bench.contestants import Contestant
from bench.peers.verbs import WARM_UP
from bench.report import Result, number
from bench.rounds import against, each, fill, interleaved, middle
from bench.server import Server, scalar


@dataclass(frozen=True)
class Enqueued:
    """Jobs per second."""

    single: float
    bulk: float


def enqueue(server: Server, contestants: Iterable[Contestant], singles: int, n: int, rounds: int) -> Result:
    """Measure in interleaved rounds; report medians, and ratios within each round."""
    contestants = list(contestants)
    found, absent = interleaved(
        "enqueue",
        contestants,
        rounds,
        lambda one: measure(server, one, singles, n),
        lambda got: f"{got.single:,.0f}/s, bulk {got.bulk:,.0f}/s",
    )
    return table(contestants, found, absent, n)


def single(got: Enqueued) -> float:
    """Return the rate of single enqueues."""
    return got.single


def bulk(got: Enqueued) -> float:
    """Return the rate of the bulk call."""
    return got.bulk


def table(
    contestants: Sequence[Contestant], found: dict[str, list[Enqueued]], absent: dict[str, str], n: int
) -> Result:
    """Return the result of all rounds."""
    columns = ["", "single jobs/s", "rounds", "pgsched / this one", f"bulk of {n:,} jobs/s", "rounds",
               "pgsched / this one"]  # fmt: skip
    result = Result("enqueue", "Enqueue, one connection", columns)
    result.data = {"contestants": {name: [asdict(one) for one in got] for name, got in found.items()}, "absent": absent}
    fill(result, contestants, absent, lambda one: row(one, found))
    return result


def row(one: Contestant, found: dict[str, list[Enqueued]]) -> list[str]:
    """Return one row of the table."""
    got, cells = found[one.name], [one.label]
    for value in (single, bulk):
        cells += [number(middle(got, value)), each(got, value), against(found, one, value)]
    return cells


def measure(server: Server, contestant: Contestant, singles: int, n: int) -> Enqueued:
    """Measure one round of one contestant."""
    with server.database(contestant.name) as dsn, psycopg.connect(dsn, autocommit=True) as look:
        call(contestant, "setup", dsn)
        one_by_one = call(contestant, "single", dsn, n=singles, first=n)
        many = call(contestant, "bulk", dsn, n=n)
        stored, expected = int(str(scalar(look, contestant.queued))), n + singles + WARM_UP
        if stored != expected:
            raise Failed(f"{contestant.name}: {expected} jobs were enqueued, the database has {stored}")
    return Enqueued(singles / one_by_one["seconds"], n / many["seconds"])
