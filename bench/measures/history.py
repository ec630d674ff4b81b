"""`history`: how claims, the status command and the ticker depend on the number of kept runs.

Invariant: the same is measured with no history and with more and more of it, in one database that grows. Each
measurement alternates with the same one in a database that stays empty, except for the slots. Half of the kept runs are
slots of the jobs that fire here, and one in 1,000 is dead. They are written in the order in which they ended, without
triggers.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

import psycopg

from bench.adapter import ROOT, call
from bench.contestants import PGSCHED
from bench.measures.drain import Drained, drained
from bench.measures.every_second import Slots
from bench.measures.every_second import measure as fire
from bench.measures.tick import enqueued_beside
from bench.report import Result, log_step, median, number, quantile
from bench.server import Server, scalar

T = TypeVar("T")
CHUNK = 1_000_000
JOBS = 500
FILL = """
INSERT INTO pgsched.runs (job_id, scheduled_at, available_at, created_at, started_at, finished_at, attempt, state,
                          phase, task, args, origin, token)
SELECT CASE WHEN i %% 2 = 0 THEN 1 + i / 2 %% 1500 END,
       CASE WHEN i %% 2 = 0 THEN timestamptz '2020-01-01 00:00Z' + make_interval(secs => i / 3000) END,
       at, at, at, at, 1, CASE WHEN i %% 1000 = 0 THEN 'dead' ELSE 'succeeded' END,
       CASE WHEN i %% 1000 = 0 THEN 4 ELSE 3 END, 'noop',
       jsonb_build_object('i', i), CASE WHEN i %% 2 = 0 THEN 'schedule' ELSE 'enqueue' END, gen_random_uuid()
FROM (SELECT i, now() - interval '6 days' * (i::float8 / %(total)s) AS at
      FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS i) AS kept
"""
CLAIMS = """
SELECT sum(total_exec_time) * 1000 / nullif(sum(rows), 0) FROM pg_stat_statements s
JOIN pg_database d ON d.oid = s.dbid AND d.datname = current_database()
WHERE query LIKE '%SKIP LOCKED%' AND query LIKE '%UPDATE pgsched.runs%' AND rows > 0
"""
# Mark runs that ended earlier as counted, because counting them is no work of the measured drain.
COUNTED = "UPDATE pgsched.rollup_mark SET counted_until = clock_timestamp()"
TOP = """
SELECT total_exec_time * 1000 / %s, left(query, 100) FROM pg_stat_statements s
JOIN pg_database d ON d.oid = s.dbid AND d.datname = current_database()
WHERE query !~ '^(VACUUM|CHECKPOINT|SELECT count|SELECT EXISTS)' ORDER BY 1 DESC  -- but for the driver's own
"""


@dataclass(frozen=True)
class Cost:
    """The cost of a drain: server microseconds per run, in claims and in all statements; and runs per second."""

    claim_us: float
    every_us: float
    drain: float
    dearest: list[str]


@dataclass(frozen=True)
class Kept:
    """The figures with this many rows of history; medians of the rounds.

    `of_empty`: for each figure, its ratios to the empty database's figure, by round.
    """

    rows: int
    claim_us: float
    every_us: float
    drain: float
    due_s: float
    status_ms: float
    start_ms: float
    slot_p50_ms: float
    slot_p99_ms: float
    missed: int
    dearest: list[str]
    rounds: dict[str, list[float]]
    of_empty: dict[str, list[float]]


@dataclass(frozen=True)
class Asked:
    """The size of each step: runs of a drain, jobs due at once, seconds of slots, and rounds."""

    n: int
    due: int
    seconds: int
    rounds: int


@dataclass(frozen=True)
class Place:
    """A database and a connection to it."""

    dsn: str
    look: psycopg.Connection


def history(server: Server, steps: Sequence[int], asked: Asked) -> Result:
    """Measure with each number of kept rows, from none, beside a database that stays empty."""
    columns = ["rows of history", "claim, per run", "of empty", "all statements, per run", "drain runs/s", "of empty",
               f"{asked.due:,} jobs due: all enqueued", "of empty", "`pgsched status`", "of empty", "of that, starting",
               f"{JOBS} jobs a second: slot p50", "p99", "missed"]  # fmt: skip
    result = Result("history", "Scaling with the runs that are kept", columns)
    every: list[Kept] = []
    with place(server, "history") as grown, place(server, "empty") as empty:
        have = 0
        for step in sorted({0, *steps}):
            fill(grown.look, have, step, max(steps))
            have = step
            every.append(measure(grown, empty, step, asked))
            log_step(f"history: {every[-1]}")
    result.rows = [row(one) for one in every]
    result.notes.append(
        f"medians of {asked.rounds} round(s) but for the slots; 'of empty': the median of the ratios to the empty"
        " database's turn in the same round"
    )
    result.data = {"steps": [asdict(one) for one in every]}
    return result


@contextmanager
def place(server: Server, name: str) -> Iterator[Place]:
    """Yield a fresh database for pgsched, with pg_stat_statements."""
    with server.database(name) as dsn, psycopg.connect(dsn, autocommit=True) as look:
        call(PGSCHED, "setup", dsn)
        look.execute("CREATE EXTENSION pg_stat_statements")
        yield Place(dsn, look)


def fill(look: psycopg.Connection, have: int, want: int, total: int) -> None:
    """Write the missing rows."""
    began = time.monotonic()
    look.execute("SET session_replication_role = replica")
    for first in range(have, want, CHUNK):
        last = min(first + CHUNK, want) - 1
        look.execute(FILL, {"first": first, "last": last, "total": max(1, total)})
        log_step(f"history: {last + 1:,} rows ({time.monotonic() - began:.0f} s)")
    look.execute("RESET session_replication_role")


def measure(grown: Place, empty: Place, rows: int, asked: Asked) -> Kept:
    """Measure everything with one number of rows."""

    def one_cost(of: Place) -> Cost:
        got = cost(of, asked.n)
        if of is empty:
            of.look.execute("TRUNCATE pgsched.runs")
        return got

    costs = in_turns(asked.rounds, grown, empty, one_cost)
    due_s = in_turns(asked.rounds, grown, empty, lambda of: enqueued_beside(of.dsn, of.look, asked.due))
    status_ms = in_turns(max(5, asked.rounds), grown, empty, lambda of: took("status", "--dsn", of.dsn))
    slots: Slots = fire(grown.dsn, JOBS, asked.seconds)
    pairs: dict[str, list[tuple[float, float]]] = {
        "claim_us": [(one.claim_us, other.claim_us) for one, other in costs],
        "drain": [(one.drain, other.drain) for one, other in costs],
        "due_s": due_s,
        "status_ms": status_ms,
    }
    rounds = {name: [one for one, _ in values] for name, values in pairs.items()}
    return Kept(
        rows,
        median(rounds["claim_us"]),
        median([one.every_us for one, _ in costs]),
        median(rounds["drain"]),
        median(rounds["due_s"]),
        median(rounds["status_ms"]),
        median([took("status", "--help") for _ in range(5)]),
        quantile(slots.late_ms, 0.5),
        quantile(slots.late_ms, 0.99),
        slots.missed,
        costs[-1][0].dearest,
        rounds,
        {name: [one / other for one, other in values] for name, values in pairs.items()},
    )


def in_turns(rounds: int, grown: Place, empty: Place, ask: Callable[[Place], T]) -> list[tuple[T, T]]:
    """Return the results with the history and without, by round; the order changes each round."""
    found: list[tuple[T, T]] = []
    for turn in range(rounds):
        answers = {of.dsn: ask(of) for of in (empty, grown)[:: 1 if turn % 2 == 0 else -1]}
        found.append((answers[grown.dsn], answers[empty.dsn]))
        log_step(f"history: with it {told(found[-1][0])}, without {told(found[-1][1])}")
    return found


def told(answer: object) -> str:
    """Format a result for the line on stderr."""
    return f"claim {answer.claim_us:.1f} us a run" if isinstance(answer, Cost) else f"{answer:.2f}"


def cost(of: Place, n: int) -> Cost:
    """Enqueue and drain `n` runs, and return the cost."""
    call(PGSCHED, "bulk", of.dsn, n=n)
    of.look.execute(COUNTED)
    of.look.execute("SELECT pg_stat_statements_reset()")
    got = drained_beside(of.look, of.dsn, n)
    claim_us = float(str(scalar(of.look, CLAIMS) or "nan"))
    every = [(float(us), " ".join(str(text).split())) for us, text in of.look.execute(TOP, [n])]
    return Cost(claim_us, sum(us for us, _ in every), got.rate, [f"{us:.1f} us {text}" for us, text in every[:4]])


def drained_beside(look: psycopg.Connection, dsn: str, n: int) -> Drained:
    """Drain `n` runs, not counting those that had finished before."""
    finished = "SELECT count(*) - {} FROM pgsched.runs WHERE state = 'succeeded' AND attempt = 1"
    before = int(str(scalar(look, finished.format(0))))
    return drained(look, replace(PGSCHED, finished=finished.format(before)), dsn, n, 1)


def row(one: Kept) -> list[str]:
    """Return one row of the table."""
    claim, drain, due, status = (number(median(one.of_empty[name]), 2) for name in one.rounds)
    return [
        number(one.rows),
        *(number(one.claim_us, 1, " us"), claim),
        number(one.every_us, 1, " us"),
        *(number(one.drain), drain),
        *(number(one.due_s, 2, " s"), due),
        *(number(one.status_ms, 0, " ms"), status),
        *(number(value, 0, " ms") for value in (one.start_ms, one.slot_p50_ms, one.slot_p99_ms)),
        str(one.missed),
    ]


def took(*arguments: str) -> float:
    """Return how many milliseconds a command takes. A status with problems has exit code 1, which is accepted."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "pgsched", *arguments], check=False, cwd=ROOT, capture_output=True)
    ms = (time.perf_counter() - began) * 1000
    if done.returncode not in (0, 1) or not done.stdout:
        raise AssertionError(f"pgsched {arguments[0]}: exit {done.returncode}: {done.stderr[-300:].decode()}")
    if done.returncode == 1:
        log_step(f"history: pgsched {arguments[0]} says: {done.stdout[:300].decode()!r}")
    return ms
