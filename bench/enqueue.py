"""`enqueue`: one by one on one connection, and many by each one's own bulk call; jobs per second.

The rule: no worker runs, and the clock covers the library's calls alone: the connection is open, and single enqueues
are warmed up. The database must hold every job afterwards. The raw ceiling is a bare INSERT, and a bare COPY.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import psycopg

from bench.adapter import Failed, call
from bench.contestants import Contestant
from bench.peers.verbs import WARM_UP
from bench.report import Result, median, number
from bench.rounds import interleaved
from bench.server import Server, scalar


@dataclass(frozen=True)
class Enqueued:
    """Jobs per second."""

    single: float
    bulk: float


def enqueue(server: Server, contestants: Iterable[Contestant], singles: int, n: int, rounds: int) -> Result:
    """Interleaved rounds; medians."""
    contestants = list(contestants)
    found, absent = interleaved(
        "enqueue",
        contestants,
        rounds,
        lambda one: measure(server, one, singles, n),
        lambda got: f"{got.single:,.0f}/s, bulk {got.bulk:,.0f}/s",
    )
    result = Result("enqueue", "Enqueue, one connection", ["", "single jobs/s", f"bulk of {n:,} jobs/s", "bulk rounds"])
    for one in contestants:
        if one.name in absent:
            result.rows.append(result.absent(one.label, absent[one.name]))
            continue
        got = found[one.name]
        rates = " ".join(number(each.bulk) for each in got)
        single, bulk = median([each.single for each in got]), median([each.bulk for each in got])
        result.rows.append([one.label, number(single), number(bulk), rates])
    result.data = {
        "contestants": {name: [asdict(each) for each in got] for name, got in found.items()},
        "absent": absent,
    }
    return result


def measure(server: Server, contestant: Contestant, singles: int, n: int) -> Enqueued:
    """One round of one contestant."""
    with server.database(contestant.name) as dsn, psycopg.connect(dsn, autocommit=True) as look:
        call(contestant, "setup", dsn)
        one_by_one = call(contestant, "single", dsn, n=singles, first=n)
        many = call(contestant, "bulk", dsn, n=n)
        stored, expected = int(str(scalar(look, contestant.queued))), n + singles + WARM_UP
        if stored != expected:
            raise Failed(f"{contestant.name}: {expected} jobs were enqueued, the database has {stored}")
    return Enqueued(singles / one_by_one["seconds"], n / many["seconds"])
