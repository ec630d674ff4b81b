"""`idle`: statements, CPU time and memory of a worker with nothing to do, and what 100 of them cost the server.

Invariant: default settings, nothing enqueued, no jobs. The figures begin two minutes after the start, because until
then candidates for the leader's lock often count each other. pg_stat_statements counts the statements, and the kernel
the CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import psycopg

from bench.adapter import Process, call, wait_for, workers
from bench.contestants import PGSCHED
from bench.machine import Cpu
from bench.report import Result, log_step, number
from bench.server import Server, scalar

SETTLE_S = 120.0
CALLS = """
SELECT coalesce(sum(calls), 0)::float8 FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
WHERE d.datname = %s
"""
TOP = """
SELECT left(query, 100), calls FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
WHERE d.datname = %s ORDER BY calls DESC LIMIT 12
"""


@dataclass(frozen=True)
class Idle:
    """Figures per second of wall time; CPU time as a share of one core."""

    workers: int
    statements: float
    worker_cpu: float
    worker_rss: float
    server_cpu: float | None
    most_frequent: list[str]


def idle(server: Server, counts: Sequence[int], seconds: float) -> Result:
    """Measure each number of workers."""
    columns = ["", "statements/s", "processor, each", "memory, each", "server's processor"]
    result = Result("idle", f"Idle workers, two minutes after their start, over {seconds:.0f} s", columns)
    for count in counts:
        got = measure(server, count, seconds)
        log_step(f"idle, {count} worker(s): {got.statements:.1f} statements/s: {'; '.join(got.most_frequent)}")
        result.rows.append(
            [
                f"{count} worker{'s' if count > 1 else ''}",
                number(got.statements, 1),
                number(got.worker_cpu * 100, 2, " % of a core"),
                number(got.worker_rss / 2**20, 0, " MB"),
                number(None if got.server_cpu is None else got.server_cpu * 100, 2, " % of a core"),
            ]
        )
        result.data[str(count)] = asdict(got)
    return result


def measure(server: Server, count: int, seconds: float) -> Idle:
    """Measure this many workers on an empty database."""
    with server.database("idle") as dsn, psycopg.connect(server.dsn, autocommit=True) as look:
        look.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        call(PGSCHED, "setup", dsn)
        with workers(PGSCHED, dsn, count, n=0) as started:
            with psycopg.connect(dsn, autocommit=True) as there:
                registered = "SELECT count(*) FROM pgsched.workers"
                wait_for(lambda: scalar(there, registered) == count, started, 600, f"{count} workers", every_s=1)
                name = there.info.dbname
            time.sleep(SETTLE_S)
            look.execute("SELECT pg_stat_statements_reset()")
            before, server_before = usage(started), server.cpu()
            time.sleep(seconds)
            after, server_after, calls = usage(started), server.cpu(), scalar(look, CALLS, [name])
            top = [f"{count / seconds:.3f}/s {' '.join(text.split())}" for text, count in look.execute(TOP, [name])]
    return Idle(
        count,
        float(str(calls)) / seconds,
        (after.seconds - before.seconds) / seconds / count,
        after.rss / count,
        None
        if server_before is None or server_after is None
        else (server_after.seconds - server_before.seconds) / seconds,
        top,
    )


def usage(processes: Sequence[Process]) -> Cpu:
    """Return what the processes use together."""
    every = [Cpu.of(process.popen.pid) for process in processes]
    return Cpu(sum(one.seconds for one in every), sum(one.rss for one in every))
