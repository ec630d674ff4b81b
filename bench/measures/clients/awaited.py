"""`awaited`: how soon a program has the result of a run, and what waiting for many runs costs.

Invariant: `result` is measured on an idle worker, one run after another, from the call of enqueue to the value. Each
run's pick-up is read from the same rows: from its creation to the start of its attempt, by the server's clock.
The rates of awaited and other runs come from one round each, in turns, from the first start to the last end.
"""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import asdict, dataclass

import psycopg

from bench.adapter import call, wait_for, workers
from bench.contestants import PGSCHED
from bench.report import Result, log_step, median, number
from bench.server import Server, scalar
from pgsched import App, State

MARKED = "SELECT count(*) FROM pgsched.runs WHERE awaited"
PICKED_UP = "SELECT extract(epoch FROM started_at - created_at) * 1000 FROM pgsched.runs ORDER BY 1"
SECONDS = "SELECT extract(epoch FROM max(finished_at) - min(started_at)) FROM pgsched.runs"
PAUSE_S = 0.02  # between two runs: the worker is idle


@dataclass(frozen=True)
class Round:
    """Medians and a 99th percentile in milliseconds, and rates in runs per second."""

    result_ms: float
    result_p99_ms: float
    pick_up_ms: float
    rate: float
    awaited_rate: float


def awaited(server: Server, singles: int, n: int, rounds: int) -> Result:
    """Measure in rounds; report medians."""
    columns = ["round", "result(), p50: ms", "p99: ms", "pick-up, p50: ms", "runs/s", "runs/s, all awaited", "ratio"]
    result = Result(
        "awaited", f"Results of {singles} runs one by one, and {n:,} runs that a program waits for", columns
    )
    found = []
    for turn in range(rounds):
        took, pick_up_ms = results(server, singles)
        plain = rate(server, n, waits=False)
        waited = rate(server, n, waits=True)
        found.append(Round(median(took), statistics.quantiles(took, n=100)[-1], pick_up_ms, plain, waited))
        log_step(f"awaited, round {turn + 1} of {rounds}: {found[-1]}")
    for name, one in [*((str(i + 1), one) for i, one in enumerate(found)), ("median", middle(found))]:
        figures = (one.result_ms, one.result_p99_ms, one.pick_up_ms), (one.rate, one.awaited_rate)
        ratio = number(one.awaited_rate / one.rate, 2)
        result.rows.append([name, *(number(f, 2) for f in figures[0]), *(number(f) for f in figures[1]), ratio])
    result.data = {"rounds": [asdict(one) for one in found]}
    return result


def middle(found: list[Round]) -> Round:
    """Return the medians of all rounds."""
    return Round(*(median([asdict(one)[name] for one in found]) for name in Round.__dataclass_fields__))


def results(server: Server, n: int) -> tuple[list[float], float]:
    """Return the times to a result, and the median of the pick-up."""
    with server.database("pgsched") as dsn:
        call(PGSCHED, "setup", dsn)
        app = App("bench", dsn=dsn)
        with workers(PGSCHED, dsn, 1), psycopg.connect(dsn, autocommit=True) as look:
            app.enqueue("noop").result(timeout=60)
            look.execute("DELETE FROM pgsched.runs")
            took = []
            for _ in range(n):
                time.sleep(PAUSE_S)
                began = time.perf_counter()
                app.enqueue("noop").result(timeout=60)
                took.append((time.perf_counter() - began) * 1000)
            picked_up = [float(row[0]) for row in look.execute(PICKED_UP)]
        app.close()
    assert len(picked_up) == n
    return took, median(picked_up)


def rate(server: Server, n: int, *, waits: bool) -> float:
    """Return the rate of `n` runs that are queued beforehand; with `waits`, a program waits for all of them."""
    with server.database("pgsched") as dsn, psycopg.connect(dsn, autocommit=True) as look:
        call(PGSCHED, "setup", dsn)
        call(PGSCHED, "bulk", dsn, n=n)
        ids = [row[0] for row in look.execute("SELECT id FROM pgsched.runs")]
        app, states = App("bench", dsn=dsn), dict[int, State]()
        waiting = threading.Thread(target=lambda: states.update(app.wait(ids, timeout=120)))
        if waits:
            waiting.start()
            wait_for(lambda: scalar(look, MARKED) == n, [], 60, "marking all runs")
        with workers(PGSCHED, dsn, 1) as processes:
            unfinished = "SELECT count(*) FROM pgsched.runs WHERE phase < 3"
            wait_for(lambda: scalar(look, unfinished) == 0, processes, 120, "the end of all runs")
            if waits:
                waiting.join(30)
                assert states == dict.fromkeys(ids, State.SUCCEEDED)
        app.close()
        return n / float(str(scalar(look, SECONDS)))
