"""`pinned`: full load, enqueue and drain together, while a repeatable-read transaction blocks every vacuum.

Invariant: one worker, one process that enqueues in bulk, and a backlog near BACKLOG, so that neither waits for the
other. The same load without the transaction is measured in the same round. Every enqueued job must have been run once.
At the end the transaction must still pin what it pinned at the beginning, and no other session may pin as much.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import psycopg

from bench.adapter import Failed, Process, call, unfinished, wait_for, workers
from bench.contestants import Contestant
from bench.measures.drain import Points, deadlocks, exactly_once, started_by
from bench.peers.record import STEP
from bench.report import Result, number
from bench.rounds import against, fill, interleaved, middle
from bench.server import Server, scalar

CHUNK = 1000
BACKLOG = 10_000
FASTEST = 300_000  # the most runs per second that can be recorded
DRAIN_S = 120.0
HORIZON = "SELECT pg_snapshot_xmin(pg_current_snapshot())::xid::text"
HELD = "SELECT backend_xmin::text FROM pg_stat_activity WHERE pid = %s"
AS_OLD = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'
AND age(backend_xmin) >= age(%s::xid)
"""


@dataclass
class Load:
    """The runs that started in each second."""

    per_second: list[float]
    deadlocks: int = 0

    def mean(self, begin: int, end: int | None) -> float:
        """Return the mean of these seconds."""
        part = self.per_second[begin:end]
        return sum(part) / max(1, len(part))

    @property
    def first(self) -> float:
        """Return the mean of the first 10 s (or of the first sixth of a shorter run)."""
        return self.mean(0, self.edge)

    @property
    def last(self) -> float:
        """Return the mean of the last 10 s (or of the last sixth of a shorter run)."""
        return self.mean(len(self.per_second) - self.edge, None)

    @property
    def edge(self) -> int:
        """Return how many seconds count as first and as last."""
        return max(1, min(10, len(self.per_second) // 6))


@dataclass
class Feeder:
    """Keeps the backlog near its target: asks for a chunk when the backlog sinks, and one chunk ahead."""

    process: Process
    asked: int = 0
    fed: int = 0
    target: int = field(default=BACKLOG)

    def look(self, started: int) -> bool:
        """Read the answers, and ask for missing chunks; return True once everything asked for is enqueued."""
        while True:
            try:
                said = self.process.lines.get_nowait()
            except queue.Empty:
                break
            if said is None:
                self.process.check()
                raise Failed(f"{self.process.contestant.name} feed: ended")
            self.fed = said.get("fed", self.fed)
        while self.asked - self.fed < 2 * CHUNK and self.asked - started < self.target:
            self.process.ask()
            self.asked += CHUNK
        return self.fed >= self.asked


Both = dict[str, Load]  # by the way of measuring: pinned, free


def pinned(
    server: Server, contestants: Iterable[Contestant], seconds: int, rounds: int = 1, *, unpinned: bool = False
) -> Result:
    """Measure each contestant with and without the transaction; with `unpinned`, only without."""
    contestants = list(contestants)
    ways = {"free": False} if unpinned else {"pinned": True, "free": False}

    def both(one: Contestant) -> Both:
        return {way: measure(server, seconds, pin, one) for way, pin in ways.items()}

    found, absent = interleaved("load", contestants, rounds, both, told)
    title = f"Full load for {seconds} s, {' and '.join(f'xmin {way}' for way in ways)} (runs/s)"
    whats = ("first", "last", "last / first", "last, pgsched / this one")
    result = Result("pinned", title, ["", *(f"{way}: {what}" for way in ways for what in whats), "deadlocks"])
    result.data = {way: {name: data([each[way] for each in got]) for name, got in found.items()} for way in ways}
    result.data["absent"] = absent
    result.notes.append("first and last: the mean of the first and of the last 10 s (a sixth of a shorter run)")
    fill(result, contestants, absent, lambda one: row(one, found, list(ways)))
    return result


def told(got: Both) -> str:
    """Format a result for the line on stderr."""
    return "; ".join(f"{way} {one.first:,.0f}/s at first, {one.last:,.0f}/s at last" for way, one in got.items())


def row(one: Contestant, found: dict[str, list[Both]], ways: list[str]) -> list[str]:
    """Return one row of the table."""
    got, cells = found[one.name], [one.label]
    for way in ways:
        loads = [each[way] for each in got]
        cells += [number(middle(loads, lambda load: load.first)), number(middle(loads, last))]
        cells += [number(middle(loads, kept), 2), against(found, one, last_of(way))]
    return [*cells, number(sum(load.deadlocks for each in got for load in each.values()))]


def last(got: Load) -> float:
    """Return the rate at the end."""
    return got.last


def last_of(way: str) -> Callable[[Both], float]:
    """Return a function for the rate at the end of one way."""
    return lambda got: got[way].last


def kept(got: Load) -> float:
    """Return the rate at the end as a share of the rate at the beginning."""
    return got.last / got.first if got.first else 0.0


def data(got: list[Load]) -> dict[str, Any]:
    """Return the figures for programs and for the plot (the seconds of the first round)."""
    return {
        "per_second": [round(one, 1) for one in got[0].per_second],
        "first": middle(got, lambda load: load.first),
        "last": middle(got, last),
        "rounds": [{"first": one.first, "last": one.last, "deadlocks": one.deadlocks} for one in got],
    }


def measure(server: Server, seconds: int, pin: bool, contestant: Contestant) -> Load:
    """Measure one contestant in a fresh database."""
    with server.database(contestant.name) as dsn, psycopg.connect(dsn, autocommit=True) as look:
        call(contestant, "setup", dsn)
        got = loaded(look, dsn, contestant, seconds, pin)
        got.deadlocks = deadlocks(look, contestant)
        return got


def loaded(look: psycopg.Connection, dsn: str, contestant: Contestant, seconds: int, pin: bool) -> Load:
    """Put the load on the worker, and check the result."""
    with ExitStack() as ends:
        [worker] = ends.enter_context(workers(contestant, dsn, 1, n=FASTEST * seconds))
        feeder = Feeder(
            Process(contestant, "feed", dsn, chunk=CHUNK), target=max(CHUNK, int(BACKLOG * contestant.share))
        )
        ends.callback(feeder.process.end)
        feeder.process.answer()
        wait_for(lambda: (feeder.look(worker.started), worker.started > CHUNK // 2)[1], [worker], 60, "full load")
        # only under load: a fresh database has no dead rows yet
        with psycopg.connect(dsn) as held, horizon(look, held, pin, contestant):
            begin_ns = load(worker, feeder, seconds)
        got = Load(per_second(worker.points, begin_ns, seconds))
        finish(look, worker, feeder)
        exactly_once(look, contestant, [worker.dump()], feeder.asked)
        return got


@contextmanager
def horizon(look: psycopg.Connection, held: psycopg.Connection, pin: bool, contestant: Contestant) -> Iterator[None]:
    """Block every vacuum during the block, or not. Raises Failed if that did not hold until the end."""
    asked: list[object] = [held.info.backend_pid]
    if pin:
        held.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        held.execute("SELECT count(*) FROM pg_class")  # takes the snapshot; the transaction stays open
        before = scalar(look, HELD, asked)
    else:
        before = scalar(look, HORIZON)
    yield
    if pin and (before is None or scalar(look, HELD, asked) != before):
        raise Failed(f"{contestant.name}: the transaction does not hold back {before}, as it did at first")
    if not pin and scalar(look, AS_OLD, [before]):
        raise Failed(f"{contestant.name}: a session has held back every vacuum since the beginning")


def load(worker: Process, feeder: Feeder, seconds: int) -> int:
    """Keep the load for this many seconds; return when it began, in monotonic ns."""
    begin_ns = time.monotonic_ns()
    while time.monotonic_ns() < begin_ns + (seconds + 0.2) * 1e9:
        feeder.look(worker.started)
        worker.check()
        if feeder.asked > FASTEST * seconds - CHUNK:
            raise Failed(f"{worker.contestant.name}: more than {FASTEST:,} jobs a second; raise FASTEST")
        time.sleep(0.002)
    return begin_ns


def finish(look: psycopg.Connection, worker: Process, feeder: Feeder) -> None:
    """Let the enqueued runs end, without asking for more."""
    feeder.target = 0
    wait_for(lambda: feeder.look(worker.started), [worker], DRAIN_S, "the last chunks")
    wait_for(lambda: worker.started > feeder.fed - STEP, [worker], DRAIN_S, "the end of the backlog")
    wait_for(lambda: not unfinished(look, worker.contestant), [worker], DRAIN_S, "the end", every_s=0.1)


def per_second(points: Points, begin_ns: int, seconds: int) -> list[float]:
    """Return the runs that started in each second since the beginning."""
    marks = [started_by(points, begin_ns + second * 1e9) for second in range(seconds + 1)]
    return [high - low for low, high in pairwise(marks)]
