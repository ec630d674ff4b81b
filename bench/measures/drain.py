"""`drain`: run queued no-op async tasks with one or two worker processes; runs per second until the database is done.

Invariant: the clock starts when every worker process has started its first run, so that no start-up counts. It stops
when the contestant's own tables have nothing unfinished. Runs that started before the clock are subtracted. The steady
rate is how fast handlers started between 10 % and 90 % of all runs. Every number must have been run once, and pgsched
must not have had a deadlock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

import psycopg

from bench.adapter import Failed, Process, Seen, call, unfinished, wait_for, workers
from bench.contestants import PGSCHED, RAW, Contestant
from bench.peers.record import STEP
from bench.report import Result, number
from bench.rounds import against, each, fill, interleaved, middle, ratio
from bench.server import Server, scalar

TIMEOUT_S = 600.0
END_S = 60
LOOK_S = 0.004
QUIET_NS = 10_000_000_000
OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
Points = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Drained:
    """The rates in runs per second, whole and steady, and what was checked."""

    rate: float
    steady: float
    runs: int
    seconds: float
    finished: int | None
    by_process: list[int] = field(default_factory=list)
    deadlocks: int = 0


def drain(server: Server, contestants: Iterable[Contestant], n: int, count: int, rounds: int) -> Result:
    """Measure the contestants in interleaved rounds; report medians, and ratios within each round."""
    contestants = list(contestants)
    what = f"drain, {count} worker(s)"
    found, absent = interleaved(what, contestants, rounds, lambda one: measure(server, one, jobs(one, n), count), told)
    return table(contestants, found, absent, count)


def jobs(contestant: Contestant, n: int) -> int:
    """Return how many of `n` jobs this contestant gets."""
    return max(min(n, 1000), int(n * contestant.share))


def told(got: Drained) -> str:
    """Format the rate for the line on stderr."""
    return f"{rate(got):,.0f}/s"


def rate(got: Drained) -> float:
    """Return the rate that is compared."""
    return got.rate


def steady(got: Drained) -> float:
    """Return the rate without start and end."""
    return got.steady


def measure(server: Server, contestant: Contestant, n: int, count: int) -> Drained:
    """Measure one round of one contestant in a fresh database."""
    with server.database(contestant.name) as dsn, psycopg.connect(dsn, autocommit=True) as look:
        call(contestant, "setup", dsn)
        call(contestant, "bulk", dsn, n=n)
        return drained(look, contestant, dsn, n, count)


def drained(
    look: psycopg.Connection, contestant: Contestant, dsn: str, n: int, count: int, **settings: object
) -> Drained:
    """Start the workers on `n` queued jobs, and stop the clock when the database is done."""
    rest(look)
    with workers(contestant, dsn, count, n=n, **settings) as started:
        begin_ns = time.monotonic_ns()
        wait_for(
            lambda: all_started(started, n) or stuck(look, started, begin_ns),
            started,
            TIMEOUT_S,
            f"the start of {n} runs",
            every_s=LOOK_S,
        )
        late = contestant.asked_late
        ran_ns = wait_for(lambda: all_run_ns(started, n), started, END_S, "the last run") if late else 0
        done_ns = wait_for(lambda: ended_ns(look, contestant), started, END_S, "the end", every_s=LOOK_S)
        seen = [process.dump() for process in started]
    finished = exactly_once(look, contestant, seen, n)
    got = figures([process.points for process in started], seen, ran_ns or done_ns, n, finished)
    return replace(got, deadlocks=deadlocks(look, contestant))


def ended_ns(look: psycopg.Connection, contestant: Contestant) -> int:
    """If nothing is unfinished, return the time just before the question, in monotonic ns; otherwise 0."""
    asked_ns = time.monotonic_ns()
    return 0 if unfinished(look, contestant) else asked_ns


def all_run_ns(started: Sequence[Process], n: int) -> int:
    """Return the current time if `n` runs have started, in monotonic ns; otherwise 0."""
    return time.monotonic_ns() if sum(process.dump().count for process in started) >= n else 0


def rest(look: psycopg.Connection) -> None:
    """Vacuum, analyze and checkpoint, so that each contestant starts with good statistics and nothing to write."""
    look.execute("VACUUM (ANALYZE)")
    look.execute("CHECKPOINT")


def all_started(started: Sequence[Process], n: int) -> bool:
    """Check whether nearly all runs have started. From then on, the database is asked."""
    return sum(process.started for process in started) > n - (STEP + 1) * len(started)


def stuck(look: psycopg.Connection, started: Sequence[Process], begin_ns: int) -> bool:
    """Raise Failed if nothing has started for a while and nothing is left to start; otherwise return False."""
    newest = max((at for process in started for _, at in process.points), default=begin_ns)
    contestant = started[0].contestant
    if time.monotonic_ns() - newest > QUIET_NS and not unfinished(look, contestant):
        ran = sum(process.dump().count for process in started)
        raise Failed(f"{contestant.name}: everything has ended, after only {ran} runs; {started[0].last_words()}")
    return False


def exactly_once(
    look: psycopg.Connection, contestant: Contestant, seen: Sequence[Seen], n: int, beside: int = 0
) -> int | None:
    """Return how many runs the database keeps as finished, or None if the contestant deletes them.

    Raises Failed unless each of `n` numbers was run once, and as many runs are finished. `beside`: how many more are
    finished, whose numbers were not counted.
    """
    check_once(contestant, seen, n)
    if contestant.finished is None:
        return None
    finished = int(str(scalar(look, contestant.finished)))
    if finished != n + beside:
        raise Failed(f"{contestant.name}: {n + beside} jobs were run, the database has {finished} as finished")
    return finished


def deadlocks(look: psycopg.Connection, contestant: Contestant) -> int:
    """Return how many deadlocks the database has had. Raises Failed for a deadlock of pgsched.

    This waits until all other sessions have ended, because a session reports its deadlocks at its end.
    """
    deadline = time.monotonic() + 60
    while scalar(look, OTHERS):
        if time.monotonic() > deadline:
            raise Failed(f"{contestant.name}: sessions of workers that were killed are still there")
        time.sleep(0.01)
    had = int(str(scalar(look, DEADLOCKS)))
    if had and contestant.name == PGSCHED.name:
        raise Failed(f"{contestant.name}: {had} deadlocks")
    return had


def check_once(contestant: Contestant, seen: Sequence[Seen], n: int) -> None:
    """Raise Failed unless each number below `n` was run once, in any process."""
    if len(seen) == 1 and seen[0].seen[:n] == b"\x01" * n:
        return
    wrong = [i for i, times in enumerate(zip(*(one.seen[:n] for one in seen), strict=True)) if sum(times) != 1]
    if wrong:
        times = sum(one.seen[wrong[0]] for one in seen)
        raise Failed(f"{contestant.name}: {len(wrong)} of {n} jobs not run once (number {wrong[0]}: {times} times)")


def figures(points: Sequence[Points], seen: Sequence[Seen], end_ns: int, n: int, finished: int | None) -> Drained:
    """Return the rates of one round."""
    at_work = [one for one in seen if one.count]
    start_ns = max(one.first_ns for one in at_work)
    before = sum(started_by(one, start_ns) for one in points)
    seconds = (end_ns - start_ns) / 1e9
    low, high = when(points, n * 0.1), when(points, n * 0.9)
    steady = n * 0.8 / ((high - low) / 1e9) if high > low else 0.0
    return Drained((n - before) / seconds, steady, n, seconds, finished, [one.count for one in seen])


def started_by(points: Points, at_ns: float) -> float:
    """Return how many runs a process had started at a time; between two points, in proportion."""
    for (low, before), (high, after) in pairwise(points):
        if before <= at_ns < after:
            return low + (high - low) * (at_ns - before) / (after - before)
    return points[-1][0] if points and at_ns >= points[-1][1] else 0


def when(points: Sequence[Points], goal: float) -> float:
    """Return the time at which the processes together had started `goal` runs."""
    instants = sorted(at for one in points for _, at in one)
    if not instants or sum(one[-1][0] for one in points if one) < goal:
        return instants[-1] if instants else 0.0
    low, high = float(instants[0]), float(instants[-1])
    for _ in range(50):
        middle = (low + high) / 2
        if sum(started_by(one, middle) for one in points) < goal:
            low = middle
        else:
            high = middle
    return high


def table(
    contestants: Sequence[Contestant], found: dict[str, list[Drained]], absent: dict[str, str], count: int
) -> Result:
    """Return the result of all rounds."""
    name = "drain" if count == 1 else f"drain-{count}"
    columns = ["", "runs/s (median)", "rounds", "of the raw ceiling", "pgsched / this one", "10-90 % runs/s", "runs",
               "kept as finished", "deadlocks"]  # fmt: skip
    if count > 1:
        columns.append("least share of a process")
    result = Result(name, f"Drain, {count} worker process{'es' if count > 1 else ''}", columns)
    result.data = {"workers": count, "absent": absent, "contestants": {name: data(found, name) for name in found}}
    result.notes.append("every number run exactly once, counted in the handlers and asked of the database")
    fill(result, contestants, absent, lambda one: row(one, found))
    return result


def row(one: Contestant, found: dict[str, list[Drained]]) -> list[str]:
    """Return one row of the table."""
    rounds = found[one.name]
    share = ratio(found, one.name, RAW.name, rate)
    kept = rounds[0].finished
    cells = [
        one.label,
        number(middle(rounds, rate)),
        each(rounds, rate),
        number(None if share is None else share * 100, 0, " %"),
        against(found, one, rate),
        number(middle(rounds, steady)),
        number(rounds[0].runs),
        "deleted" if kept is None else number(kept),
        number(sum(got.deadlocks for got in rounds)),
    ]
    if len(rounds[0].by_process) > 1:
        cells.append(number(min(min(got.by_process) / sum(got.by_process) for got in rounds) * 100, 0, " %"))
    return cells


def data(found: dict[str, list[Drained]], name: str) -> dict[str, Any]:
    """Return the figures for programs."""
    return {
        "rounds": [asdict(got) for got in found[name]],
        "rate": middle(found[name], rate),
        "ratio": ratio(found, name, RAW.name, rate),
        "pgsched_ratio": ratio(found, PGSCHED.name, name, rate),
    }
