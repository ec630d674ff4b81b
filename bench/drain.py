"""`drain`: queued no-op async tasks, then one or two worker processes; runs per second until the database says done.

The rule: the clock starts when every worker process has started its first run (so no one's start-up counts), and stops
when the contestant's own tables hold nothing unfinished. Runs started before that instant are taken off. Beside it the
steady rate: how fast handlers were started between 10 % and 90 % of all. Every number must have been run once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import psycopg

from bench.adapter import Failed, Process, Seen, call, wait_for, workers
from bench.contestants import RAW, Contestant
from bench.peers.record import STEP
from bench.report import Result, median, number
from bench.rounds import interleaved
from bench.server import Server, scalar

TIMEOUT_S = 600.0
QUIET_NS = 10_000_000_000
Points = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Drained:
    """Runs per second, whole and steady, and what was checked."""

    rate: float
    steady: float
    runs: int
    seconds: float
    finished: int | None


def drain(server: Server, contestants: Iterable[Contestant], n: int, count: int, rounds: int) -> Result:
    """Interleaved rounds over the contestants; medians, and the ratio to the ceiling of the same round."""
    contestants = list(contestants)
    what = f"drain, {count} worker(s)"
    found, absent = interleaved(what, contestants, rounds, lambda one: measure(server, one, jobs(one, n), count), rate)
    return table(contestants, found, absent, count)


def jobs(contestant: Contestant, n: int) -> int:
    """How many of n jobs this one gets."""
    return max(min(n, 1000), int(n * contestant.share))


def rate(got: Drained) -> str:
    """For the progress."""
    return f"{got.rate:,.0f}/s"


def measure(server: Server, contestant: Contestant, n: int, count: int) -> Drained:
    """One round of one contestant, in a fresh database."""
    with server.database(contestant.name) as dsn, psycopg.connect(dsn, autocommit=True) as look:
        call(contestant, "setup", dsn)
        call(contestant, "bulk", dsn, n=n)
        return drained(look, contestant, dsn, n, count)


def drained(
    look: psycopg.Connection, contestant: Contestant, dsn: str, n: int, count: int, **settings: object
) -> Drained:
    """Start the workers on n queued jobs, and stop the clock when the database says done."""
    # Everyone starts with good statistics and nothing left to write.
    look.execute("VACUUM (ANALYZE)")
    look.execute("CHECKPOINT")
    with workers(contestant, dsn, count, n=n, **settings) as started:
        begin_ns = time.monotonic_ns()
        wait_for(
            lambda: all_started(started, n) or stuck(look, started, begin_ns),
            started,
            TIMEOUT_S,
            f"the start of {n} runs",
        )
        look.execute("SET enable_seqscan = off")  # a look must cost nothing, however long the history
        wait_for(lambda: not scalar(look, contestant.unfinished), started, 60, "the end", every_s=0.004)
        end_ns = time.monotonic_ns()
        look.execute("RESET enable_seqscan")
        seen = [process.dump() for process in started]
    finished = exactly_once(look, contestant, seen, n)
    return figures([process.points for process in started], seen, end_ns, n, finished)


def all_started(started: Sequence[Process], n: int) -> bool:
    """Have nearly all runs been started? From then on the database is asked."""
    return sum(process.started for process in started) > n - (STEP + 1) * len(started)


def stuck(look: psycopg.Connection, started: Sequence[Process], begin_ns: int) -> bool:
    """Never true. Raises Failed when nothing has been started for a while and nothing is left to start."""
    newest = max((at for process in started for _, at in process.points), default=begin_ns)
    contestant = started[0].contestant
    if time.monotonic_ns() - newest > QUIET_NS and not scalar(look, contestant.unfinished):
        ran = sum(process.dump().count for process in started)
        raise Failed(f"{contestant.name}: everything has ended, after only {ran} runs; {started[0].last_words()}")
    return False


def exactly_once(look: psycopg.Connection, contestant: Contestant, seen: Sequence[Seen], n: int) -> int | None:
    """The number that the database keeps as finished. Raises Failed unless each of n was run once."""
    check_once(contestant, seen, n)
    if contestant.finished is None:
        return None
    finished = int(str(scalar(look, contestant.finished)))
    if finished != n:
        raise Failed(f"{contestant.name}: {n} jobs were run, the database has {finished} as finished")
    return finished


def check_once(contestant: Contestant, seen: Sequence[Seen], n: int) -> None:
    """Raise Failed unless each number below n was run once, by whichever process."""
    if len(seen) == 1 and seen[0].seen[:n] == b"\x01" * n:
        return
    wrong = [i for i, times in enumerate(zip(*(one.seen[:n] for one in seen), strict=True)) if sum(times) != 1]
    if wrong:
        times = sum(one.seen[wrong[0]] for one in seen)
        raise Failed(f"{contestant.name}: {len(wrong)} of {n} jobs not run once (number {wrong[0]}: {times} times)")


def figures(points: Sequence[Points], seen: Sequence[Seen], end_ns: int, n: int, finished: int | None) -> Drained:
    """The rates of one round."""
    at_work = [one for one in seen if one.count]
    start_ns = max(one.first_ns for one in at_work)
    before = sum(started_by(one, start_ns) for one in points)
    seconds = (end_ns - start_ns) / 1e9
    low, high = when(points, n * 0.1), when(points, n * 0.9)
    steady = n * 0.8 / ((high - low) / 1e9) if high > low else 0.0
    return Drained((n - before) / seconds, steady, n, seconds, finished)


def started_by(points: Points, at_ns: float) -> float:
    """How many runs a process had started at an instant, between its points by proportion."""
    for (low, before), (high, after) in pairwise(points):
        if before <= at_ns < after:
            return low + (high - low) * (at_ns - before) / (after - before)
    return points[-1][0] if points and at_ns >= points[-1][1] else 0


def when(points: Sequence[Points], goal: float) -> float:
    """The instant at which the processes together had started so many runs."""
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
    """The result of all rounds."""
    name = "drain" if count == 1 else f"drain-{count}"
    result = Result(
        name,
        f"Drain, {count} worker process{'es' if count > 1 else ''}",
        ["", "runs/s (median)", "rounds", "of the raw ceiling", "10-90 % runs/s", "runs", "kept as finished"],
    )
    ceiling = found.get(RAW.name, [])
    for one in contestants:
        result.rows.append(
            result.absent(one.label, absent[one.name]) if one.name in absent else row(one, found[one.name], ceiling)
        )
    result.data = {"workers": count, "absent": absent, "contestants": data(found, ceiling)}
    result.notes.append("every number run exactly once, counted in the handlers and asked of the database")
    return result


def row(one: Contestant, rounds: list[Drained], ceiling: list[Drained]) -> list[str]:
    """One line of the table."""
    ratio = median(ratios(rounds, ceiling)) if ceiling else None
    kept = rounds[0].finished
    return [
        one.label,
        number(median([got.rate for got in rounds])),
        " ".join(number(got.rate) for got in rounds),
        number(None if ratio is None else ratio * 100, 0, " %"),
        number(median([got.steady for got in rounds])),
        number(rounds[0].runs),
        "deleted" if kept is None else number(kept),
    ]


def ratios(rounds: list[Drained], ceiling: list[Drained]) -> list[float]:
    """Each round's rate, as a share of the ceiling of the same round."""
    return [got.rate / top.rate for got, top in zip(rounds, ceiling, strict=False)]


def data(found: dict[str, list[Drained]], ceiling: list[Drained]) -> dict[str, Any]:
    """The figures for programs."""
    return {
        name: {
            "rounds": [asdict(got) for got in rounds],
            "rate": median([got.rate for got in rounds]),
            "ratio": median(ratios(rounds, ceiling)) if ceiling else None,
        }
        for name, rounds in found.items()
    }
