"""Measure pgsched, alone or beside its peers; without WHAT, everything."""

from __future__ import annotations

import argparse
import logging
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from bench import machine, plots
from bench.adapter import Failed
from bench.contestants import ALL, ENDURING, PEERS, PGSCHED, RAW, RAW_500, STATEMENTS, THREADED, Contestant, named
from bench.install import Unavailable
from bench.measures import schedules
from bench.measures.clients.awaited import awaited
from bench.measures.clients.crowd import crowd
from bench.measures.clients.enqueue import enqueue
from bench.measures.console import console
from bench.measures.costs import costs
from bench.measures.drain import drain
from bench.measures.every_second import every_second
from bench.measures.history import Asked, history
from bench.measures.idle import idle
from bench.measures.jobs_file import jobs_file
from bench.measures.latency import RATE, latency, latency_sql
from bench.measures.limits import limits
from bench.measures.piles.many_queues import many_queues
from bench.measures.piles.piled_up import piled_up
from bench.measures.pinned import pinned
from bench.measures.prune import prune
from bench.measures.recipes import everything as coordinating
from bench.measures.recipes.field import COORDINATORS
from bench.measures.roles import roles
from bench.measures.size import sizes
from bench.measures.slow import slow
from bench.measures.tick import tick
from bench.memory import MEMINFO
from bench.report import Result, header, logs_from, write
from bench.server import Server, server

ROOT = Path(__file__).resolve().parent
# errors of one measurement, which must not stop the others
TROUBLE = (psycopg.Error, OSError, AssertionError, RuntimeError, ValueError, subprocess.SubprocessError, Failed,
           Unavailable)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    made.add_argument("what", nargs="*", metavar="WHAT", help=f"of {', '.join(MEASUREMENTS)}; default: all")
    made.add_argument("--dsn", help="measure on this server (its role may create databases) instead of a private one")
    made.add_argument("--peers", action="store_true", help="compare with the peers where that makes sense")
    made.add_argument("--only", help="only these contestants, comma-separated: " + ", ".join(one.name for one in ALL))
    made.add_argument("--n", type=int, help="jobs of drain and of bulk enqueue (default 100,000); runs of size")
    made.add_argument(
        "--workers", type=int, choices=(1, 2), help="worker processes of drain (default: first 1, then 2)"
    )
    made.add_argument("--rounds", type=int, default=3, help="rounds of what is measured in turns")
    made.add_argument("--seconds", type=int, help="how long latency, pinned and every-second load the server")
    made.add_argument("--rate", type=int, default=RATE, help=f"jobs a second of latency (default {RATE})")
    made.add_argument("--unpinned", action="store_true", help="pinned: only the load without a pinned transaction")
    made.add_argument("--rows", type=int, help="kept runs of history and console (default 10,000,000)")
    made.add_argument(
        "--spare-core", action="store_true", help="prune: the pruner and its session have a processor of their own"
    )
    made.add_argument(
        "--fill-memory", action="store_true", help="before each measurement let the page cache take what is free, as on"
        " a server that has been up for a while: a virtual machine may have given it back to its host"
    )  # fmt: skip
    made.add_argument("--quick", action="store_true", help="a small run that shows that everything works")
    made.add_argument("--out", type=Path, default=ROOT / "out", help="where results.json and the plots go")
    return made


def contestants(given: argparse.Namespace) -> list[Contestant]:
    """Return the contestants of this run. Raises ValueError for an unknown name."""
    if given.only:
        return named(given.only.split(","), ALL)
    return [RAW, PGSCHED, *(PEERS if given.peers else ())]


def enduring(given: argparse.Namespace, *always: Contestant) -> list[Contestant]:
    """Return the contestants of a long load: of the peers only the best, unless `--only` names some."""
    return contestants(given) if given.only else [*always, *(ENDURING if given.peers else ())]


def run_drain(on: Server, given: argparse.Namespace) -> Iterator[Result]:
    n = given.n or (5000 if given.quick else 100_000)
    rounds = 1 if given.quick else given.rounds
    counts = [given.workers] if given.workers else [1, 2]
    chosen = contestants(given)
    if not given.only and not given.quick:
        chosen[1:1] = [RAW_500, STATEMENTS]
        chosen.insert(chosen.index(PGSCHED) + 1, THREADED)
    for count in counts:
        # STATEMENTS has one loop, so it takes no second worker.
        yield drain(on, chosen if count == 1 else without(chosen, STATEMENTS), n, count, rounds)


def without(chosen: list[Contestant], left_out: Contestant) -> list[Contestant]:
    """Return the contestants without this one."""
    return [one for one in chosen if one is not left_out]


def run_costs(on: Server, given: argparse.Namespace) -> list[Result]:
    n, rounds = (5000, 1) if given.quick else (given.n or 100_000, given.rounds)
    return [costs(on, [RAW, STATEMENTS, PGSCHED], n, rounds)]


def run_enqueue(on: Server, given: argparse.Namespace) -> list[Result]:
    n = given.n or (5000 if given.quick else 100_000)
    singles, rounds = (100, 1) if given.quick else (2000, given.rounds)
    return [enqueue(on, contestants(given), singles, n, rounds)]


def run_crowd(on: Server, given: argparse.Namespace) -> list[Result]:
    return [crowd(on, 1, 1) if given.quick else crowd(on, given.seconds or 10, given.rounds)]


def run_latency(on: Server, given: argparse.Namespace) -> list[Result]:
    chosen, seconds = contestants(given), given.seconds or (2 if given.quick else 20)
    rounds = 1 if given.quick else given.rounds
    return [latency(on, chosen, seconds, rounds, given.rate), latency_sql(on, chosen, seconds, rounds, given.rate)]


def run_pinned(on: Server, given: argparse.Namespace) -> list[Result]:
    seconds, rounds = given.seconds or (6 if given.quick else 60), 1 if given.quick else given.rounds
    return [pinned(on, enduring(given, RAW, PGSCHED), seconds, rounds, unpinned=given.unpinned)]


def run_ten_minutes(on: Server, given: argparse.Namespace) -> list[Result]:
    seconds = 2 if given.quick else 600
    result = pinned(on, enduring(given, PGSCHED), seconds=seconds, unpinned=True)
    result.name, result.title = "ten-minutes", f"Full load for {seconds} s, nothing that pins xmin (runs/s)"
    return [result]


def run_slow(on: Server, given: argparse.Namespace) -> list[Result]:
    seconds, rounds = (2, 1) if given.quick else (10, given.rounds)
    return [slow(on, contestants(given), seconds, rounds)]


def run_awaited(on: Server, given: argparse.Namespace) -> list[Result]:
    singles, n, rounds = (20, 1000, 1) if given.quick else (300, given.n or 10_000, given.rounds)
    return [awaited(on, singles, n, rounds)]


def run_recipes(on: Server, given: argparse.Namespace) -> Iterable[Result]:
    size = coordinating.SMALL if given.quick else replace(coordinating.FULL, rounds=given.rounds)
    chosen = named(given.only.split(","), COORDINATORS) if given.only else None
    return coordinating.recipes(on, chosen, replace(size, seconds=given.seconds or size.seconds))


def run_every_second(on: Server, given: argparse.Namespace) -> list[Result]:
    if given.quick:
        return [every_second(on, [(50, 3)], 1)]
    return [every_second(on, [(500, given.seconds or 60), (5000, (given.seconds or 60) // 2)], given.rounds)]


def run_idle(on: Server, given: argparse.Namespace) -> list[Result]:
    return [idle(on, [1], 2) if given.quick else idle(on, [1, 100], 30)]


def run_history(on: Server, given: argparse.Namespace) -> list[Result]:
    if given.quick:
        return [history(on, [given.rows or 2000], Asked(2000, 500, 2, 1))]
    rows = given.rows or 10_000_000
    return [history(on, [rows // 10, rows], Asked(20_000, 10_000, 10, given.rounds))]


def run_tick(on: Server, given: argparse.Namespace) -> list[Result]:
    if given.quick:
        return [tick(on, [500], (5000, 2), (10_000, 1), 1)]
    return [tick(on, [1000, 10_000, 100_000], (100_000, 20), (1_000_000, 20), given.rounds)]


def run_piled_up(on: Server, given: argparse.Namespace) -> list[Result]:
    return [piled_up(on, 0.01, 3.0) if given.quick else piled_up(on, 1.0, given.seconds or 30.0)]


def run_many_queues(on: Server, given: argparse.Namespace) -> list[Result]:
    return [many_queues(on, [100], 2.0) if given.quick else many_queues(on, [100, 20_000], given.seconds or 30.0)]


def run_limits(on: Server, given: argparse.Namespace) -> list[Result]:
    n, rounds, chain = (2000, 1, 50) if given.quick else (given.n or 50_000, given.rounds, 500)
    return [limits(on, n, rounds, chain)]


def run_prune(on: Server, given: argparse.Namespace) -> list[Result]:
    rows = given.rows or (40_000 if given.quick else 4_000_000)
    rounds, seconds = (1, 2) if given.quick else (given.rounds, given.seconds or 10)
    return [prune(on, rows, rounds, seconds, spare_core=given.spare_core)]


def run_console(on: Server, given: argparse.Namespace) -> list[Result]:
    rows = given.rows or (20_000 if given.quick else 10_000_000)
    return [console(on, rows, given.n or (5 if given.quick else 100))]


def run_roles(on: Server, given: argparse.Namespace) -> list[Result]:
    rounds = given.rounds if given.quick else max(given.rounds, 12)
    return [roles(on, given.n or (500 if given.quick else 5000), rounds)]


def run_schedules(on: Server, given: argparse.Namespace) -> list[Result]:
    return [schedules.measured(100 if given.quick else 2000)]


def run_size(on: Server, given: argparse.Namespace) -> list[Result]:
    return [sizes(on, given.n or (200 if given.quick else 10_000))]


def run_jobs_file(on: Server, given: argparse.Namespace) -> list[Result]:
    return [jobs_file(on, 200, 1) if given.quick else jobs_file(on, given.n or 5000, given.rounds)]


MEASUREMENTS: dict[str, Callable[[Server, argparse.Namespace], Iterable[Result]]] = {
    "drain": run_drain,
    "costs": run_costs,
    "enqueue": run_enqueue,
    "crowd": run_crowd,
    "latency": run_latency,
    "pinned": run_pinned,
    "ten-minutes": run_ten_minutes,
    "slow": run_slow,
    "awaited": run_awaited,
    "recipes": run_recipes,
    "every-second": run_every_second,
    "idle": run_idle,
    "history": run_history,
    "tick": run_tick,
    "limits": run_limits,
    "piled-up": run_piled_up,
    "many-queues": run_many_queues,
    "prune": run_prune,
    "roles": run_roles,
    "console": run_console,
    "schedules": run_schedules,
    "size": run_size,
    "jobs-file": run_jobs_file,
}


@contextmanager
def like_ctrl_c() -> Iterator[None]:
    """End the block on SIGTERM as on Ctrl-C; otherwise the server would stay behind."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt("SIGTERM")

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def complain(text: str) -> None:
    """Print one line on stderr."""
    print(f"bench: {' '.join(text.split())}", file=sys.stderr, flush=True)


def refusal(given: argparse.Namespace) -> str | None:
    """Return what is wrong with the command line, or None."""
    if unknown := [name for name in given.what if name not in MEASUREMENTS]:
        return f"{', '.join(unknown)}: no such measurement; known are {', '.join(MEASUREMENTS)}"
    try:
        named(given.only.split(","), COORDINATORS) if given.only and given.what == ["recipes"] else contestants(given)
    except ValueError as error:
        return str(error)
    if given.fill_memory and not MEMINFO.exists():
        return f"--fill-memory needs {MEMINFO}, which tells how much memory is free; only Linux has it"
    if given.fill_memory and given.dsn:
        return "--fill-memory fills the memory of this machine, for a server that this benchmark starts: without --dsn"
    return None


def missing(result: Result) -> list[str]:
    """Return the contestants that could not be measured, with the reasons."""
    return [f"{result.name}: {name}: {why}" for name, why in result.data.get("absent", {}).items()]


def measure(on: Server, given: argparse.Namespace) -> list[str]:
    """Measure, print the tables, and write the results; return what could not be measured.

    Plots are drawn even if a measurement ends with an error.
    """
    run = {"command": f"python -m bench {shlex.join(sys.argv[1:])}".strip(), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    run["commit"] = machine.commit(ROOT.parent)
    about = {"run": run, "machine": machine.about(), "server": on.about()}
    print(header(about), flush=True)
    results: list[Result] = []
    wrong: list[str] = []
    try:
        for name in given.what or MEASUREMENTS:
            try:
                for result in MEASUREMENTS[name](on, given):
                    print(result.markdown(), flush=True)
                    results.append(result)
                    write(given.out, about, results)
                    wrong += missing(result)
            except TROUBLE as error:
                wrong.append(f"{name}: {type(error).__name__}: {error}")
                complain(wrong[-1])
    finally:
        if results:
            plots.draw(given.out)
    return wrong


def main(argv: Sequence[str] | None = None) -> int:
    """Do everything that was asked for; return the exit code.

    It is 1 if something could not be measured, and 2 for a wrong command line.
    """
    given = parser().parse_args(argv)
    if refused := refusal(given):
        complain(refused)
        return 2
    with like_ctrl_c(), logs_from(logging.WARNING), server(given.dsn, given.fill_memory) as on:
        wrong = measure(on, given)
    if wrong:
        complain(f"not measured: {'; '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
