"""`costs`: where the CPU time of a drained run is spent: in the worker, its server sessions, and the statements.

Invariant: one worker process drains no-op async tasks. CPU time is read between 10 % and 90 % of the runs, so that
neither start nor end counts. pg_stat_statements gives the elapsed time of statements over the whole drain, waits
included. This needs Linux, and a server that this benchmark started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from bench.adapter import Failed, Process, call, unfinished, wait_for, workers
from bench.contestants import Contestant
from bench.machine import Cpu, cpu_s
from bench.measures.drain import exactly_once, rest
from bench.report import Result, median, number
from bench.rounds import interleaved
from bench.server import Server

WORKER, SERVER = "worker process", "server"
SHOWN_US = 0.05
SESSIONS = """
SELECT CASE WHEN application_name LIKE 'pgsched %' THEN split_part(application_name, ' ', 2) ELSE 'all' END, pid
FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
STATEMENTS = """
SELECT regexp_replace(left(query, 70), '\\s+', ' ', 'g'), total_exec_time * 1000 / %s, calls FROM pg_stat_statements s
JOIN pg_database d ON d.oid = s.dbid AND d.datname = current_database()
WHERE query ~ 'UPDATE' ORDER BY total_exec_time DESC LIMIT 2
"""
Used = dict[str, float]


@dataclass(frozen=True)
class Costs:
    """Microseconds per run: CPU time by process, and elapsed time by statement with the runs per call."""

    processes: Used
    statements: list[tuple[str, float, float]]

    @property
    def both(self) -> float:
        """Return the CPU time of the worker and of the server."""
        return self.processes[WORKER] + self.processes[SERVER]


def costs(server: Server, contestants: Sequence[Contestant], n: int, rounds: int) -> Result:
    """Measure in interleaved rounds; report medians."""
    found, absent = interleaved(
        "costs", contestants, rounds, lambda one: measure(server, one, n), lambda got: f"{got.both:.1f} us a run"
    )
    result = Result(
        "costs", f"Processor's time of a run, us: {n:,} no-op runs, one worker", ["", "", "median", "rounds"]
    )
    for one in contestants:
        if one.name in absent:
            result.rows.append(result.absent(one.label, absent[one.name]))
            continue
        result.rows += rows(one, found[one.name])
        for text, us, runs in found[one.name][-1].statements:
            quoted = text.replace("|", "/")
            result.notes.append(f"{one.label}: {us:.1f} us a run, {runs:,.0f} runs a call: `{quoted}…`")
    result.data = {name: [each.processes for each in got] for name, got in found.items()} | {"absent": absent}
    return result


def rows(contestant: Contestant, rounds: Sequence[Costs]) -> list[list[str]]:
    """Return a row for each process with a visible share, and one for the sum."""
    every = {name: [one.processes.get(name, 0.0) for one in rounds] for name in rounds[0].processes}
    every["worker and server"] = [one.both for one in rounds]
    return [
        [contestant.label, name, number(median(values), 1), " ".join(number(value, 1) for value in values)]
        for name, values in every.items()
        if median(values) >= SHOWN_US
    ]


def measure(server: Server, contestant: Contestant, n: int) -> Costs:
    """Measure one drain in a fresh database."""
    if server.pid is None:
        raise Failed("costs: the server's processes must be this command's own (no --dsn)")
    with server.database("costs") as dsn, psycopg.connect(dsn, autocommit=True) as look:
        call(contestant, "setup", dsn)
        look.execute("CREATE EXTENSION pg_stat_statements")
        call(contestant, "bulk", dsn, n=n)
        rest(look)
        look.execute("SELECT pg_stat_statements_reset()")
        with workers(contestant, dsn, 1, n=n) as [worker]:
            each = between(server, look, worker, n / 10, n * 0.9)
            wait_for(lambda: not unfinished(look, contestant), [worker], 60, "the end")
            exactly_once(look, contestant, [worker.dump()], n)
            found = look.execute(STATEMENTS.encode(), [n]).fetchall()
    return Costs(each, [(str(text), float(us), n / int(calls)) for text, us, calls in found])


def between(server: Server, look: psycopg.Connection, worker: Process, low: float, high: float) -> Used:
    """Return what a run costs each process, between two numbers of started runs."""
    wait_for(lambda: worker.started > low, [worker], 60, f"{low:.0f} runs", every_s=0.005)
    first, before = worker.started, used(server, look, worker)
    wait_for(lambda: worker.started > high, [worker], 600, f"{high:.0f} runs", every_s=0.005)
    last, after = worker.started, used(server, look, worker)
    return {name: (seconds - before.get(name, 0.0)) * 1e6 / (last - first) for name, seconds in after.items()}


def used(server: Server, look: psycopg.Connection, worker: Process) -> Used:
    """Return the CPU seconds so far of the worker, the whole server, and each of the worker's sessions."""
    whole = server.cpu()
    found: Used = {WORKER: Cpu.of(worker.popen.pid).seconds, SERVER: 0.0 if whole is None else whole.seconds}
    for purpose, pid in look.execute(SESSIONS.encode()).fetchall():
        name = f"server, session: {purpose}"
        found[name] = found.get(name, 0.0) + cpu_s(int(pid))
    return found
