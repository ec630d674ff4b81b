"""`latency`: how soon an idle worker starts a job, at a steady 100 a second (`--rate`); from commit to handler.

The rule: both ends are stamped on CLOCK_MONOTONIC, which the processes of one machine share: the enqueuer when its call
has returned, the handler in its first statement. The commit is a little earlier than the return of the call, so a
quick worker may be at work before it; such a figure is negative and stays so. "From the call" counts from before the
enqueue was sent. A slow client hears late of its commit, which flatters its worker: `latency_sql` enqueues with one
client for all, those that have an SQL function for it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import psycopg

from bench.adapter import Failed, Process, Seen, call, wait_for, workers
from bench.contestants import RAW, Contestant
from bench.drain import check_once
from bench.peers.record import Pulse
from bench.peers.verbs import WARM_UP
from bench.report import Result, number, quantile
from bench.rounds import interleaved
from bench.server import Server

RATE = 100
FAR = 1_000_000  # numbers of warm-up jobs, beyond those that are measured


@dataclass(frozen=True)
class Latencies:
    """Milliseconds, one for each job."""

    commit: list[float]
    call: list[float]


def latency(server: Server, contestants: Iterable[Contestant], seconds: int, rate: int = RATE) -> Result:
    """Each contestant once."""
    contestants = [one for one in contestants if one is not RAW]  # it has no wake-up
    title = f"Pick-up latency, idle worker, {rate} jobs/s for {seconds} s, commit to handler start"
    found, absent = interleaved(
        "latency",
        contestants,
        1,
        lambda one: measure(server, one, seconds, rate),
        lambda got: f"p50 {quantile(got.commit, 0.5):.2f} ms",
    )
    result = Result("latency", title, ["", "p50", "p99", "max", "p50 from the call", "p99 from the call"])
    for one in contestants:
        if one.name in absent:
            result.rows.append(result.absent(one.label, absent[one.name]))
        else:
            result.rows.append([one.label, *row(found[one.name][0])])
    result.data = {"contestants": {name: figures(got[0]) for name, got in found.items()}, "absent": absent}
    return result


def latency_sql(
    server: Server, contestants: Iterable[Contestant], seconds: int, rounds: int, rate: int = RATE
) -> Result:
    """Those that offer SQL, in turns; of each figure the median of its rounds."""
    contestants = [one for one in contestants if one.sql is not None]
    title = f"The same, enqueued by psycopg and an SQL function for all, medians of {rounds} rounds"
    found, absent = interleaved(
        "latency_sql",
        contestants,
        rounds,
        lambda one: measure(server, one, seconds, rate, sql=one.sql),
        lambda got: f"p50 {quantile(got.commit, 0.5):.2f} ms",
    )
    result = Result("latency_sql", title, ["", "p50", "p99", "p50 from the call", "p99 from the call", "p50s", "p99s"])
    for one in contestants:
        if one.name in absent:
            result.rows.append(result.absent(one.label, absent[one.name]))
            continue
        got = found[one.name]
        p50s, p99s, calls, calls_99 = (
            [quantile(values, q) for values in each]
            for each in ([g.commit for g in got], [g.call for g in got])
            for q in (0.5, 0.99)
        )
        medians = [number(statistics.median(values), 2, " ms") for values in (p50s, p99s, calls, calls_99)]
        result.rows.append([one.label, *medians, *(" ".join(number(v, 2) for v in values) for values in (p50s, p99s))])
        result.data[one.name] = {"p50_ms": p50s, "p99_ms": p99s, "call_p50_ms": calls, "call_p99_ms": calls_99}
    return result


def row(got: Latencies) -> list[str]:
    """The figures of one contestant."""
    shares = [quantile(got.commit, 0.5), quantile(got.commit, 0.99), max(got.commit)]
    return [number(value, 2, " ms") for value in (*shares, quantile(got.call, 0.5), quantile(got.call, 0.99))]


def figures(got: Latencies) -> dict[str, Any]:
    """For programs, and for the plot."""
    return {
        "p50_ms": quantile(got.commit, 0.5),
        "p99_ms": quantile(got.commit, 0.99),
        "max_ms": max(got.commit),
        "ms": [round(value, 3) for value in got.commit],
    }


def measure(server: Server, contestant: Contestant, seconds: int, rate: int, sql: str | None = None) -> Latencies:
    """One contestant, in a fresh database; its own client enqueues, or one for all with `sql`."""
    n = rate * seconds
    with server.database(contestant.name) as dsn:
        call(contestant, "setup", dsn)
        with workers(contestant, dsn, 1, n=n, stamps=1, latency=1) as started:
            call(contestant, "single", dsn, n=1, first=FAR)
            wait_for(lambda: started[0].points, started, 60, "the first job")
            time.sleep(1.0)  # the worker's start is over: from here on it is idle
            sent = trickle(dsn, sql, n, rate) if sql else call(contestant, "trickle", dsn, n=n, rate=rate)
            seen = all_seen(contestant, started[0], n)
        check_once(contestant, [seen], n)
    since = [(at - done) / 1e6 for at, done in zip(seen.stamps, sent["after"], strict=True)]
    call_since = [(at - began) / 1e6 for at, began in zip(seen.stamps, sent["before"], strict=True)]
    return Latencies(since, call_since)


def trickle(dsn: str, sql: str, n: int, rate: int) -> dict[str, list[int]]:
    """What the verb does (bench/peers/verbs.py), by a statement: when each was sent and committed, in ns."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for i in range(WARM_UP):
            conn.execute(sql.encode(), [FAR + 1 + i])
            time.sleep(0.02)
        pulse = Pulse(rate, n)
        for i in range(n):
            time.sleep(pulse.wait_s(i))
            pulse.sending()
            conn.execute(sql.encode(), [i])
            pulse.committed()
    return {"before": pulse.before, "after": pulse.after}


def all_seen(contestant: Contestant, worker: Process, n: int, timeout_s: float = 120) -> Seen:
    """What the worker saw, once it has seen everything. Raises Failed after the time."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen = worker.dump()
        if seen.seen.count(0) == 0:
            return seen
        if time.monotonic() > deadline:
            raise Failed(f"{contestant.name}: {seen.seen.count(0)} of {n} jobs were not started; {worker.last_words()}")
        time.sleep(0.2)
