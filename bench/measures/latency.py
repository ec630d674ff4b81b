"""`latency`: how soon an idle worker starts a job, from the commit to the handler, at a steady 100 jobs/s (`--rate`).

Invariant: the time of the commit is the server's own, from the commit record (commits.py). So the latency includes the
flush of that commit, alike for all. The handler stamps its time in its first statement. Both ends of the enqueuing call
are stamped too, on CLOCK_MONOTONIC, which all processes of a machine share.

"From the return" counts from when the client learned of the commit. A slow client learns of it late, which flatters its
worker. A quick worker may start before that: then the figure is negative, and is reported so. "From the call" counts
from before the enqueue was sent. `latency_sql` enqueues with one client for all contestants that have an SQL function
for it. Rounds are interleaved; each job must have been run once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from bench.adapter import Failed, Process, Seen, call, unfinished, wait_for, workers
from bench.contestants import RAW, RAW_500, Contestant
from bench.measures.commits import Commits
from bench.measures.drain import exactly_once
from bench.peers.verbs import WARM_UP
from bench.report import Result, number, quantile
from bench.rounds import against, each, fill, interleaved, middle
from bench.server import Server

RATE = 100
FAR = 1_000_000  # numbers of warm-up jobs begin here, beyond the measured ones
WARMED = WARM_UP + 1 + WARM_UP  # how many warm-up jobs the verbs `single` and `trickle` enqueue


@dataclass(frozen=True)
class Latencies:
    """Milliseconds, one value for each job."""

    commit: list[float]
    returned: list[float]
    call: list[float]


Figure = Callable[[Latencies], float]


def of_commit(share: float) -> Figure:
    """Return a function for a quantile of the times since the commit."""
    return lambda got: quantile(got.commit, share)


def of_return(share: float) -> Figure:
    """Return a function for a quantile of the times since the client learned of the commit."""
    return lambda got: quantile(got.returned, share)


def of_call(share: float) -> Figure:
    """Return a function for a quantile of the times since the call."""
    return lambda got: quantile(got.call, share)


P50, P99, P50_RETURN = of_commit(0.5), of_commit(0.99), of_return(0.5)
FIGURES: dict[str, Figure] = {
    "p50": P50,
    "p99": P99,
    "max": lambda got: max(got.commit),
    "p50 from the return": P50_RETURN,
    "p99 from the return": of_return(0.99),
    "p50 from the call": of_call(0.5),
    "p99 from the call": of_call(0.99),
}


def latency(
    server: Server, contestants: Iterable[Contestant], seconds: int, rounds: int = 1, rate: int = RATE
) -> Result:
    """Measure each contestant with its own client."""
    contestants = [one for one in contestants if one not in (RAW, RAW_500)]  # these two have no wake-up
    title = f"Pick-up latency, idle worker, {rate} jobs/s for {seconds} s, the server's commit to handler start"
    found, absent = interleaved("latency", contestants, rounds, lambda one: measure(server, one, seconds, rate), told)
    return table("latency", title, contestants, found, absent)


def latency_sql(
    server: Server, contestants: Iterable[Contestant], seconds: int, rounds: int, rate: int = RATE
) -> Result:
    """Measure the contestants that offer SQL, with one client for all."""
    contestants = [one for one in contestants if one.sql is not None]
    title = "The same, enqueued by psycopg and an SQL function for all"
    found, absent = interleaved(
        "latency_sql", contestants, rounds, lambda one: measure(server, one, seconds, rate, sql=one.sql), told
    )
    return table("latency_sql", title, contestants, found, absent)


def told(got: Latencies) -> str:
    """Format a result for the line on stderr."""
    return f"p50 {P50(got):.2f} ms"


def table(
    name: str,
    title: str,
    contestants: Sequence[Contestant],
    found: dict[str, list[Latencies]],
    absent: dict[str, str],
) -> Result:
    """Return the result of all rounds."""
    compared = ["p50s", "p99s", *(f"{name}, pgsched / this one" for name in ("p50", "p99", "p50 from the return"))]
    result = Result(name, title, ["", *FIGURES, *compared])
    result.notes.append("from the time in the commit's record: it takes in the flush of that commit, for all alike")
    result.data = {"contestants": {name: data(got) for name, got in found.items()}, "absent": absent}
    fill(result, contestants, absent, lambda one: row(one, found))
    return result


def row(one: Contestant, found: dict[str, list[Latencies]]) -> list[str]:
    """Return the row of one contestant."""
    got = found[one.name]
    medians = [number(middle(got, figure), 2, " ms") for figure in FIGURES.values()]
    rounds = [each(got, figure, 2) for figure in (P50, P99)]
    return [one.label, *medians, *rounds, *(against(found, one, figure) for figure in (P50, P99, P50_RETURN))]


def data(got: list[Latencies]) -> dict[str, Any]:
    """Return the figures for programs and for the plot: medians, those of each round, and all jobs of all rounds."""
    return {
        "p50_ms": middle(got, P50),
        "p99_ms": middle(got, P99),
        "rounds": [{name: round(figure(turn), 3) for name, figure in FIGURES.items()} for turn in got],
        "ms": [round(value, 3) for turn in got for value in turn.commit],
    }


def measure(server: Server, contestant: Contestant, seconds: int, rate: int, sql: str | None = None) -> Latencies:
    """Measure one contestant in a fresh database; its own client enqueues, or with `sql` the one for all."""
    with server.database(contestant.name) as dsn, psycopg.connect(dsn, autocommit=True) as look:
        call(contestant, "setup", dsn)
        with Commits(dsn, contestant) as commits:
            sent, seen = trickle(look, contestant, dsn, seconds, rate, sql)
            committed = commits.instants(sent["before"], sent["after"])
        return Latencies(*(since(instants, seen.stamps) for instants in (committed, sent["after"], sent["before"])))


def trickle(
    look: psycopg.Connection, contestant: Contestant, dsn: str, seconds: int, rate: int = RATE, sql: str | None = None
) -> tuple[dict[str, Any], Seen]:
    """Put a steady load on an idle worker; return when each call began and returned, and what the worker saw.

    Raises Failed unless each job was run once, and is finished.
    """
    n = rate * seconds
    client = replace(contestant, name="sql", lock=None) if sql else contestant
    with workers(contestant, dsn, 1, n=n, stamps=1, latency=1) as started:
        call(contestant, "single", dsn, n=1, first=FAR)
        wait_for(lambda: started[0].points, started, 60, "the first job")
        time.sleep(1.0)  # the worker has started: from here on it is idle
        sent = call(client, "trickle", dsn, n=n, rate=rate, sql=sql)
        all_seen(contestant, started[0], n)
        wait_for(lambda: not unfinished(look, contestant), started, 60, "the end")
        seen = started[0].dump()
    exactly_once(look, contestant, [seen], n, WARMED)
    return sent, seen


def since(instants: Sequence[int], stamps: Sequence[int]) -> list[float]:
    """Return the milliseconds from each time to the handler's."""
    return [(stamp - at) / 1e6 for at, stamp in zip(instants, stamps, strict=True)]


def all_seen(contestant: Contestant, worker: Process, n: int, timeout_s: float = 120) -> None:
    """Wait until the worker has seen every job. Raises Failed after the time."""
    deadline = time.monotonic() + timeout_s
    while missing := worker.dump().seen.count(0):
        if time.monotonic() > deadline:
            raise Failed(f"{contestant.name}: {missing} of {n} jobs were not started; {worker.last_words()}")
        time.sleep(0.2)
