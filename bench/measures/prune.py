"""`prune`: how fast history is pruned, what that costs running work, and what counting ended runs costs.

Invariant: pick-up is measured with and without pruning in turns, in one run. The pruner is the leader's, with its
pauses, beside an idle worker. A third arm separates the cost of pruning from that of any work on a small machine: a
session that computes, touches no table, and works as long with the same pauses. With `--spare-core`, the pruner and its
session have one processor to themselves, which shows what they cost others besides CPU time. Each job must have been
run once.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NoReturn

import psycopg

from bench.adapter import call
from bench.contestants import PGSCHED
from bench.machine import Cpu
from bench.measures.latency import since, trickle
from bench.report import Result, log_step, median, number, quantile
from bench.server import ALL_CORES, Server, core_to_spare, move, scalar
from pgsched.config import LeaderSettings
from pgsched.db.connection.connect import BY_INDEX, Connection, connect
from pgsched.db.queries.leader import rollups
from pgsched.leader.pruner import PAUSE_FACTOR, Pruner
from pgsched.leader.rollups import BATCH
from pgsched.leader.timing.periodic import next_batch_at

JOBS = 50
ENOUGH = 75_000  # no pruner deletes more rows per second
PLAIN, PRUNING, COMPUTING = ARMS = ("plain", "pruning", "computing")
AROUND_S = 3  # how long a worker takes to start and to end
OLD = """
INSERT INTO pgsched.runs (task, job_id, scheduled_at, origin, state, phase, token, attempt, created_at, available_at,
    started_at, finished_at, worker_id, args)
SELECT 't' || mod(n, 20), CASE WHEN of_job THEN first + mod(n / 5, %(jobs)s) END, CASE WHEN of_job THEN t END,
    CASE WHEN of_job THEN 'schedule' ELSE 'enqueue' END, CASE WHEN mod(n, 100) = 0 THEN 'dead' ELSE 'succeeded' END,
    CASE WHEN mod(n, 100) = 0 THEN 4 ELSE 3 END, gen_random_uuid(), 1, t, t, t + interval '5 ms',
    t + interval '15 ms', 1, '{"n": 1}'
FROM (SELECT min(id) AS first FROM pgsched.jobs) j, generate_series(1, %(rows)s) n,
    LATERAL (SELECT clock_timestamp() - interval '20 days' + n * interval '1 ms' AS t, mod(n, 5) = 0 AS of_job) x
"""
# As many rows again of other runs, so that the planner does not read a whole table just because it is small.
ATTEMPTS = """
INSERT INTO pgsched.attempts (run_id, attempt, token, outcome, error, worker, started_at, finished_at)
SELECT CASE WHEN mod(n, 2) = 0 THEN n * 50 ELSE -n END, 1, gen_random_uuid(), 'failed', 'broken', 'w', now(), now()
FROM generate_series(1, %(rows)s / 50) n
"""
OUTPUT = """
INSERT INTO pgsched.run_logs (run_id, token, attempt, seq, stream, chunk)
SELECT CASE WHEN mod(n, 2) = 0 THEN n * 20 ELSE -n END, gen_random_uuid(), 1, 1, 'stdout', repeat('x', 100)
FROM generate_series(1, %(rows)s / 20) n
"""
BLOAT = "SELECT pg_relation_size('pgsched.runs')"
NEWEST = "SELECT max(id) FROM pgsched.runs"
FINISHED = "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded' AND attempt = 1 AND id > {}"


@dataclass(frozen=True)
class Figures:
    """Milliseconds, rows per second, and microseconds per run."""

    pickup_p50_ms: float
    pickup_p99_ms: float
    pruning_p50_ms: float
    pruning_p99_ms: float
    p99_ratio: float
    computing_p99_ms: float
    computing_p99_ratio: float
    rows_a_second: float
    rows_a_second_alone: float
    batch_ms: float
    server_us_a_run: float
    client_us_a_run: float
    counting_us_a_run: float
    table_grew_by: float


def prune(server: Server, rows: int, rounds: int, seconds: int, *, spare_core: bool = False) -> Result:
    """Measure everything in one database: pick-up in turns, then pruning the rest of the history alone."""
    rows = max(rows, ENOUGH * (seconds + AROUND_S) * (rounds + 1))
    with server.database("prune") as dsn, core_to_spare(server) if spare_core else nullcontext():
        call(PGSCHED, "setup", dsn)
        with psycopg.connect(dsn, autocommit=True) as there:
            fill(there, rows)
            counted = count_all(dsn)
            got = measured(dsn, there, rounds, seconds, counted)
    result = Result("prune", f"Pruning {rows:,} runs", ["", "figure"])
    result.rows = [[name.replace("_", " "), number(value, 2)] for name, value in asdict(got).items()]
    result.data = asdict(got)
    return result


def fill(there: psycopg.Connection, rows: int) -> None:
    """Write a history of 20 days ago: 1/5 runs of jobs, 1/100 with a failed attempt, 1/40 with output."""
    there.execute(
        "INSERT INTO pgsched.jobs (name, schedule, task) SELECT 'j' || n, '@yearly', 't' FROM generate_series(1, %s) n",
        [JOBS],
    )
    there.execute("ALTER TABLE pgsched.runs DISABLE TRIGGER USER")
    for statement in (OLD, ATTEMPTS, OUTPUT):
        there.execute(statement.encode(), {"rows": rows, "jobs": JOBS})
    there.execute("ALTER TABLE pgsched.runs ENABLE TRIGGER USER")
    there.execute("VACUUM ANALYZE")
    there.execute("CHECKPOINT")


def count_all(dsn: str) -> float:
    """Return how many microseconds per run counting takes."""
    took, runs = 0.0, 0
    with connect(dsn, purpose="bench", settings=BY_INDEX) as conn:
        safe = rollups.find_uncounted(conn).now
        while True:
            began = time.monotonic()
            with conn.transaction():
                counted = rollups.count(conn, safe, BATCH)
            took, runs = took + time.monotonic() - began, runs + counted
            if counted < BATCH:
                return 1e6 * took / max(runs, 1)


def measured(dsn: str, there: psycopg.Connection, rounds: int, seconds: int, counted: float) -> Figures:
    """Measure pick-up without and with pruning, and the rates of pruning."""
    before = int(str(scalar(there, BLOAT)))
    with pruner(dsn) as first:
        time.sleep(1.0)
    batch_s = statistics.median(took for _, took, _ in (first or empty("the pruner")))
    turns = Turns()
    for turn in range(rounds):
        for arm in turns.order(turn):
            with beside_it(arm, dsn, batch_s) as batches:
                turns.ms[arm].append(pick_up(dsn, there, seconds))
            if arm == PRUNING:
                turns.pruned.append(batches)
        p99s = [quantile(turns.ms[arm][-1], 0.99) for arm in ARMS]
        log_step(f"prune: p99 {p99s[0]:.2f} ms, beside pruning {p99s[1]:.2f} ms, {rate(turns.pruned[-1]):,.0f} rows/s,"
                 f" beside computing {p99s[2]:.2f} ms")  # fmt: skip
    with pruner(dsn) as alone:
        time.sleep(seconds / 2)
    return figures(turns, alone, counted, (int(str(scalar(there, BLOAT))) - before) / before)


@dataclass
class Turns:
    """The milliseconds of each pick-up, by arm and round, and what the pruner did in the meantime."""

    ms: dict[str, list[list[float]]] = field(default_factory=lambda: {arm: [] for arm in ARMS})
    pruned: list[Batches] = field(default_factory=list)

    def order(self, turn: int) -> list[str]:
        """Return the arms in an order in which, over the rounds, each follows each of the others."""
        arms = [ARMS[(turn + n) % 3] for n in range(3)]
        return arms[:: 1 if turn % 2 == 0 else -1]

    def quantiles(self, arm: str, share: float) -> list[float]:
        """Return a quantile of each round."""
        return [quantile(one, share) for one in self.ms[arm]]

    def ratio(self, arm: str) -> float:
        """Return the 99th percentile of an arm as a share of the plain arm's in the same round; the median."""
        return median([b / a for a, b in zip(self.quantiles(PLAIN, 0.99), self.quantiles(arm, 0.99), strict=True)])


def figures(turns: Turns, alone: Batches, counted: float, grew: float) -> Figures:
    """Return the medians of the rounds."""
    every = [batch for one in (*turns.pruned, alone) for batch in one]
    server, client = zip(*(one.spent for one in (*turns.pruned, alone)), strict=True)
    runs = sum(rows for rows, _, _ in every)
    return Figures(
        pickup_p50_ms=median(turns.quantiles(PLAIN, 0.5)),
        pickup_p99_ms=median(turns.quantiles(PLAIN, 0.99)),
        pruning_p50_ms=median(turns.quantiles(PRUNING, 0.5)),
        pruning_p99_ms=median(turns.quantiles(PRUNING, 0.99)),
        p99_ratio=turns.ratio(PRUNING),
        computing_p99_ms=median(turns.quantiles(COMPUTING, 0.99)),
        computing_p99_ratio=turns.ratio(COMPUTING),
        rows_a_second=median([rate(one) for one in turns.pruned]),
        rows_a_second_alone=rate(alone),
        batch_ms=1000 * median([took for _, took, _ in every]),
        server_us_a_run=1e6 * sum(server) / runs,
        client_us_a_run=1e6 * sum(client) / runs,
        counting_us_a_run=counted,
        table_grew_by=grew,
    )


def pick_up(dsn: str, there: psycopg.Connection, seconds: int) -> list[float]:
    """Measure as `latency` does, from the return of the call, without counting runs of the history."""
    newer = replace(PGSCHED, finished=FINISHED.format(scalar(there, NEWEST)))
    sent, seen = trickle(there, newer, dsn, seconds)
    there.execute("DELETE FROM pgsched.workers")
    return since(sent["after"], seen.stamps)


def beside_it(arm: str, dsn: str, batch_s: float) -> AbstractContextManager[Batches]:
    """Return a context manager that does the work of an arm during its block."""
    if arm == PLAIN:
        return nobody()
    return pruner(dsn) if arm == PRUNING else computer(dsn, batch_s)


class Batches(list[tuple[int, float, float]]):
    """Batches of rows, with their seconds and end; `spent`: CPU seconds of the server and of the client."""

    spent = (0.0, 0.0)


@contextmanager
def nobody() -> Iterator[Batches]:
    """Do nothing during the block."""
    yield Batches()


@contextmanager
def computer(dsn: str, batch_s: float) -> Iterator[Batches]:
    """Compute for about `batch_s` seconds at a time in a session that reads and writes no table."""
    with connect(dsn, purpose="bench") as conn:
        began = time.monotonic()
        for _ in range(5):
            compute(conn, 100_000)
        n = round(500_000 * batch_s / (time.monotonic() - began))
        with in_the_leaders_rhythm(conn, lambda: compute(conn, n)) as batches:
            yield batches
        if not batches:
            empty("the session that computes")


def compute(conn: Connection[Any], n: int) -> int:
    # in the select list, where PostgreSQL makes the numbers one by one: in FROM it would first write them to a file
    conn.execute("SELECT count(*) FROM (SELECT generate_series(1, %s)) n", [n])
    return n


@contextmanager
def pruner(dsn: str) -> Iterator[Batches]:
    """Run the leader's pruner during the block."""
    mine = Pruner()

    def batch() -> int:
        with conn.transaction():
            return mine.prune_batch(conn, LeaderSettings().prune_batch)

    with (
        connect(dsn, purpose="bench", settings=BY_INDEX) as conn,
        in_the_leaders_rhythm(conn, batch) as batches,
    ):
        yield batches


@contextmanager
def in_the_leaders_rhythm(conn: Connection[Any], batch: Callable[[], int]) -> Iterator[Batches]:
    """Do batches with the leader's pauses in a thread, until the block ends or a batch has no rows."""
    batches = Batches()
    stop = threading.Event()

    def work() -> None:
        if spare := ALL_CORES - os.sched_getaffinity(0):
            move((0, conn.info.backend_pid), spare)
        server, client = Cpu.of(conn.info.backend_pid).seconds, time.thread_time()
        while not stop.is_set():
            began = time.monotonic()
            if not (rows := batch()):
                return
            batches.spent = Cpu.of(conn.info.backend_pid).seconds - server, time.thread_time() - client
            batches.append((rows, time.monotonic() - began, time.monotonic()))
            time.sleep(max(0.0, next_batch_at(began, PAUSE_FACTOR) - time.monotonic()))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield batches
    finally:
        stop.set()
        thread.join()


def empty(what: str) -> NoReturn:
    raise RuntimeError(f"{what} did nothing: there is nothing to measure")


def rate(batches: Batches) -> float:
    """Return the rows per second, pauses included."""
    span = batches[-1][2] - batches[0][2] if len(batches) > 1 else 0.0
    return sum(rows for rows, _, _ in batches[1:]) / span if span else 0.0
