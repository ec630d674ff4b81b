"""`prune`: how fast history goes, what that costs those who work meanwhile, and what counting what ended costs.

The rule: pick-up is measured with and without pruning in turns, in one run; the pruner is the leader's, with its
pauses, beside an idle worker. A third turn tells what pruning does from what any work does to a small machine: a
session that computes, and touches no table, for as long and with the same pauses. And `--spare-core` leaves one
processor to the pruner and its session, which tells what they do to others besides using it.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import psycopg

from bench.adapter import call, wait_for, workers
from bench.contestants import PGSCHED
from bench.latency import FAR, RATE, all_seen
from bench.machine import Cpu, children
from bench.report import Result, number, progress, quantile
from bench.server import Server, scalar
from pgsched.config import LeaderSettings
from pgsched.db import rollups
from pgsched.db.connect import BY_INDEX, Connection, connect
from pgsched.leader import counting
from pgsched.leader.duties import breather
from pgsched.leader.pruner import REST, Pruner

ALL_CORES = os.sched_getaffinity(0)
JOBS = 50
ENOUGH = 75_000  # rows a second that a pruner may take away
AROUND_S = 3  # how long a worker takes to start and to end
OLD = """
INSERT INTO pgsched.runs (task, job_id, scheduled_at, origin, state, token, attempt, created_at, available_at,
    started_at, finished_at, worker_id, args)
SELECT 't' || mod(n, 20), CASE WHEN of_job THEN first + mod(n / 5, %(jobs)s) END, CASE WHEN of_job THEN t END,
    CASE WHEN of_job THEN 'schedule' ELSE 'enqueue' END, CASE WHEN mod(n, 100) = 0 THEN 'dead' ELSE 'succeeded' END,
    gen_random_uuid(), 1, t, t, t + interval '5 ms', t + interval '15 ms', 1, '{"n": 1}'
FROM (SELECT min(id) AS first FROM pgsched.jobs) j, generate_series(1, %(rows)s) n,
    LATERAL (SELECT clock_timestamp() - interval '20 days' + n * interval '1 ms' AS t, mod(n, 5) = 0 AS of_job) x
"""
# as many rows again of other runs, so that a table is not read just because it is small
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


@dataclass(frozen=True)
class Figures:
    """Milliseconds, rows a second, microseconds a run."""

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
    """All of it, in one database: pick-up in turns, then the rest of the history alone."""
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
    """History of twenty days ago: a fifth of jobs, a hundredth with an attempt that failed, a fortieth with output."""
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
    """Microseconds a run that counting takes."""
    took, runs = 0.0, 0
    with connect(dsn, purpose="bench", settings=BY_INDEX) as conn:
        safe = rollups.look(conn).now
        while True:
            began = time.monotonic()
            with conn.transaction():
                counted = rollups.count(conn, safe, counting.BATCH)
            took, runs = took + time.monotonic() - began, runs + counted
            if counted < counting.BATCH:
                return 1e6 * took / max(runs, 1)


def measured(dsn: str, there: psycopg.Connection, rounds: int, seconds: int, counted: float) -> Figures:
    """Pick-up without and with pruning, and the rate of both."""
    plain: list[list[float]] = []
    beside: list[list[float]] = []
    computed: list[list[float]] = []
    pruned: list[Batches] = []
    before = int(str(scalar(there, BLOAT)))
    with pruner(dsn) as first:
        time.sleep(1.0)
    batch_s = statistics.median(took for _, took, _ in (first or empty("the pruner")))

    def beside_it(arm: list[list[float]]) -> AbstractContextManager[Batches]:
        if arm is plain:
            return nobody()
        return pruner(dsn) if arm is beside else computer(dsn, batch_s)

    for turn in range(rounds):
        # so that each follows each of the others
        arms = [(plain, beside, computed)[(turn + n) % 3] for n in range(3)]
        for arm in arms[:: 1 if turn % 2 == 0 else -1]:
            with beside_it(arm) as batches:
                arm.append(picked_up(dsn, there, seconds))
            if arm is beside:
                pruned.append(batches)
        p99s = [quantile(each[-1], 0.99) for each in (plain, beside, computed)]
        progress(f"prune: p99 {p99s[0]:.2f} ms, beside pruning {p99s[1]:.2f} ms, {rate(pruned[-1]):,.0f} rows/s,"
                 f" beside computing {p99s[2]:.2f} ms")  # fmt: skip
    with pruner(dsn) as batches:
        time.sleep(seconds / 2)
    every = [batch for one in (*pruned, batches) for batch in one]
    server, client = zip(*(one.spent for one in (*pruned, batches)), strict=True)
    runs = sum(rows for rows, _, _ in every)
    p99 = [tuple(quantile(one, 0.99) for one in each) for each in zip(plain, beside, computed, strict=True)]
    return Figures(
        statistics.median(quantile(one, 0.5) for one in plain),
        statistics.median(a for a, _, _ in p99),
        statistics.median(quantile(one, 0.5) for one in beside),
        statistics.median(b for _, b, _ in p99),
        statistics.median(b / a for a, b, _ in p99),
        statistics.median(c for _, _, c in p99),
        statistics.median(c / a for a, _, c in p99),
        statistics.median(map(rate, pruned)),
        rate(batches),
        1000 * statistics.median(took for _, took, _ in every),
        1e6 * sum(server) / runs,
        1e6 * sum(client) / runs,
        counted,
        (int(str(scalar(there, BLOAT))) - before) / before,
    )


def picked_up(dsn: str, there: psycopg.Connection, seconds: int) -> list[float]:
    """Milliseconds from commit to handler of a steady load on an idle worker."""
    n = RATE * seconds
    with workers(PGSCHED, dsn, 1, n=n, stamps=1, latency=1) as started:
        call(PGSCHED, "single", dsn, n=1, first=FAR)
        wait_for(lambda: started[0].points, started, 60, "the first job")
        time.sleep(1.0)
        sent = call(PGSCHED, "trickle", dsn, n=n, rate=RATE)
        seen = all_seen(PGSCHED, started[0], n)
    there.execute("DELETE FROM pgsched.workers")
    return [(at - done) / 1e6 for at, done in zip(seen.stamps, sent["after"], strict=True)]


class Batches(list[tuple[int, float, float]]):
    """Rows, seconds, when it ended; `spent`: processor seconds of the server and of the client."""

    spent = (0.0, 0.0)


@contextmanager
def nobody() -> Iterator[Batches]:
    """No pruner."""
    yield Batches()


@contextmanager
def computer(dsn: str, batch_s: float) -> Iterator[Batches]:
    """A session that computes for about so many seconds at a time, and reads and writes no table."""
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
    # in the select list, where PostgreSQL makes one number after another: in FROM it would write them to a file first
    conn.execute("SELECT count(*) FROM (SELECT generate_series(1, %s)) n", [n])
    return n


@contextmanager
def pruner(dsn: str) -> Iterator[Batches]:
    """The leader's pruner for the time of the block."""
    mine = Pruner()

    def batch() -> int:
        with conn.transaction():
            return mine.work(conn, LeaderSettings().prune_batch)

    with (
        connect(dsn, purpose="bench", settings=BY_INDEX) as conn,
        in_the_leaders_rhythm(conn, batch) as batches,
    ):
        yield batches


@contextmanager
def in_the_leaders_rhythm(conn: Connection[Any], batch: Callable[[], int]) -> Iterator[Batches]:
    """Batches with the leader's pauses in a thread, for the time of the block or until one has no rows."""
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
            time.sleep(max(0.0, breather(began, REST) - time.monotonic()))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield batches
    finally:
        stop.set()
        thread.join()


@contextmanager
def core_to_spare(server: Server) -> Iterator[None]:
    """For the time of the block this process, what it starts and the server use all processors but the last."""
    if server.pid is None:
        raise RuntimeError("--spare-core needs a server that this benchmark starts")
    if len(os.sched_getaffinity(0)) < 2:
        raise RuntimeError("--spare-core needs two processors")
    everyone = (0, server.pid, *children(server.pid))
    before = os.sched_getaffinity(0)
    move(everyone, sorted(before)[:-1])
    try:
        yield
    finally:
        move(everyone, before)


def move(pids: Iterable[int], cores: Collection[int]) -> None:
    """Processes, 0: this thread, run on those processors from now on."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.sched_setaffinity(pid, cores)


def empty(what: str) -> NoReturn:
    raise RuntimeError(f"{what} did nothing: there is nothing to measure")


def rate(batches: Batches) -> float:
    """Rows a second, pauses included."""
    span = batches[-1][2] - batches[0][2] if len(batches) > 1 else 0.0
    return sum(rows for rows, _, _ in batches[1:]) / span if span else 0.0
