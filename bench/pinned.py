"""`pinned`: full load, continuous enqueue and drain, while a repeatable-read transaction holds back every vacuum.

The rule: one worker, one process that enqueues in bulk, and a backlog held near BACKLOG, so that neither waits for the
other. The same load without the transaction is measured beside it. Every job that was enqueued must have been run once.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import psycopg

from bench.adapter import Failed, Process, call, wait_for, workers
from bench.contestants import Contestant
from bench.drain import Points, check_once, started_by
from bench.peers.record import STEP
from bench.report import Result, number
from bench.rounds import interleaved
from bench.server import Server, scalar

CHUNK = 1000
BACKLOG = 10_000
FASTEST = 100_000  # runs a second for which there is room
DRAIN_S = 120.0


@dataclass
class Load:
    """Runs started in each second, and how many jobs were enqueued in all."""

    per_second: list[float]
    fed: int = 0
    finished: int | None = None

    def mean(self, begin: int, end: int | None) -> float:
        """Of a stretch of seconds."""
        part = self.per_second[begin:end]
        return sum(part) / max(1, len(part))

    @property
    def first(self) -> float:
        """The first 10 s (or the first sixth of a shorter run)."""
        return self.mean(0, self.edge)

    @property
    def last(self) -> float:
        """The last 10 s."""
        return self.mean(len(self.per_second) - self.edge, None)

    @property
    def edge(self) -> int:
        """How many seconds count as first and as last."""
        return max(1, min(10, len(self.per_second) // 6))


@dataclass
class Feeder:
    """Keeps the backlog where it should be: asks for a chunk when it sinks, with one more under way."""

    process: Process
    asked: int = 0
    fed: int = 0
    target: int = field(default=BACKLOG)

    def look(self, started: int) -> bool:
        """Take what was answered, ask for what is missing. True once everything asked for is enqueued."""
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


def pinned(server: Server, contestants: Iterable[Contestant], seconds: int, *, unpinned: bool = False) -> Result:
    """Each contestant with and without the transaction; only without, if `unpinned`."""
    contestants = list(contestants)
    ways = {"free": False} if unpinned else {"pinned": True, "free": False}
    title = f"Full load for {seconds} s, {' and '.join(f'xmin {way}' for way in ways)} (runs/s)"
    columns = ["", *(f"{way}: {what}" for way in ways for what in ("first", "last", "last / first"))]
    result = Result("pinned", title, columns)
    absent: dict[str, str] = {}
    rows: dict[str, list[str]] = {one.name: [one.label] for one in contestants}
    for way, pin in ways.items():
        loaded = partial(measure, server, seconds, pin)
        found, gone = interleaved(f"load, xmin {way}", contestants, 1, loaded, told)
        absent |= gone
        result.data[way] = data(found)
        for name, got in found.items():
            rows[name] += figures(got[0])
    for one in contestants:
        gone_why = absent.get(one.name)
        result.rows.append(rows[one.name] if gone_why is None else result.absent(one.label, gone_why))
    result.data["absent"] = absent
    result.notes.append("first and last: the mean of the first and of the last 10 s (a sixth of a shorter run)")
    return result


def told(got: Load) -> str:
    """For the progress."""
    return f"{got.first:,.0f}/s at first, {got.last:,.0f}/s at last"


def figures(got: Load) -> list[str]:
    """Three cells of the table."""
    return [number(got.first), number(got.last), number(got.last / got.first if got.first else None, 2)]


def data(found: dict[str, list[Load]]) -> dict[str, Any]:
    """For programs, and for the plot."""
    return {
        name: {"per_second": [round(one, 1) for one in got[0].per_second], "first": got[0].first, "last": got[0].last}
        for name, got in found.items()
    }


def measure(server: Server, seconds: int, pin: bool, contestant: Contestant) -> Load:
    """One contestant, in a fresh database."""
    with ExitStack() as ends:
        dsn = ends.enter_context(server.database(contestant.name))
        call(contestant, "setup", dsn)
        [worker] = ends.enter_context(workers(contestant, dsn, 1, n=FASTEST * seconds))
        feeder = Feeder(
            Process(contestant, "feed", dsn, chunk=CHUNK), target=max(CHUNK, int(BACKLOG * contestant.share))
        )
        ends.callback(feeder.process.end)
        feeder.process.answer()
        wait_for(lambda: (feeder.look(worker.started), worker.started > CHUNK // 2)[1], [worker], 60, "full load")
        # only now: a fresh database has nothing dead yet
        held = ends.enter_context(psycopg.connect(dsn))
        if pin:
            held.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            held.execute("SELECT count(*) FROM pg_class")  # the snapshot; the transaction stays open
        begin_ns = load(worker, feeder, seconds)
        got = Load(per_second(worker.points, begin_ns, seconds), feeder.asked)
        finish(ends.enter_context(psycopg.connect(dsn, autocommit=True)), worker, feeder)
        check_once(contestant, [worker.dump()], got.fed)
        return got


def load(worker: Process, feeder: Feeder, seconds: int) -> int:
    """Hold the load for so long; returns when it began (monotonic ns)."""
    begin_ns = time.monotonic_ns()
    while time.monotonic_ns() < begin_ns + (seconds + 0.2) * 1e9:
        feeder.look(worker.started)
        worker.check()
        if feeder.asked > FASTEST * seconds - CHUNK:
            raise Failed(f"{worker.contestant.name}: more than {FASTEST:,} jobs a second; raise FASTEST")
        time.sleep(0.002)
    return begin_ns


def finish(look: psycopg.Connection, worker: Process, feeder: Feeder) -> None:
    """Let what is enqueued be run: no more is asked for."""
    feeder.target = 0
    wait_for(lambda: feeder.look(worker.started), [worker], DRAIN_S, "the last chunks")
    wait_for(lambda: worker.started > feeder.fed - STEP, [worker], DRAIN_S, "the end of the backlog")
    wait_for(lambda: not scalar(look, worker.contestant.unfinished), [worker], DRAIN_S, "the end", every_s=0.1)


def per_second(points: Points, begin_ns: int, seconds: int) -> list[float]:
    """Runs started in each second since the beginning."""
    marks = [started_by(points, begin_ns + second * 1e9) for second in range(seconds + 1)]
    return [high - low for low, high in pairwise(marks)]
