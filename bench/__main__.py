"""`python -m bench [WHAT] [options]`: measure pgsched, alone or beside its peers; without WHAT, everything."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import machine, plots
from bench.contestants import ALL, PEERS, PGSCHED, RAW, Contestant, named
from bench.drain import drain
from bench.enqueue import enqueue
from bench.latency import latency
from bench.report import Result, header, write
from bench.server import Server, server

ROOT = Path(__file__).resolve().parent


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    made.add_argument("what", nargs="*", metavar="WHAT", help=f"of {', '.join(MEASUREMENTS)}; default: all")
    made.add_argument("--dsn", help="measure on this server (its role may create databases) instead of a private one")
    made.add_argument("--peers", action="store_true", help="compare with the peers where that makes sense")
    made.add_argument("--only", help="only these contestants, comma-separated: " + ", ".join(one.name for one in ALL))
    made.add_argument("--n", type=int, help="jobs of drain and of bulk enqueue (default 100,000)")
    made.add_argument(
        "--workers", type=int, choices=(1, 2), help="worker processes of drain (default: first 1, then 2)"
    )
    made.add_argument("--rounds", type=int, default=3, help="rounds of drain and enqueue")
    made.add_argument("--seconds", type=int, help="how long latency, pinned and every-second load the server")
    made.add_argument("--quick", action="store_true", help="a small run that shows that everything works")
    made.add_argument("--out", type=Path, default=ROOT / "out", help="where results.json and the plots go")
    return made


def contestants(given: argparse.Namespace, *, ceiling: bool = True) -> list[Contestant]:
    """Who takes part in this run."""
    if given.only:
        return named(given.only.split(","))
    return [*([RAW] if ceiling else []), PGSCHED, *(PEERS if given.peers else ())]


def run_drain(on: Server, given: argparse.Namespace) -> list[Result]:
    n = given.n or (5000 if given.quick else 100_000)
    rounds = 1 if given.quick else given.rounds
    counts = [given.workers] if given.workers else [1, 2]
    return [drain(on, contestants(given), n, count, rounds) for count in counts]


def run_enqueue(on: Server, given: argparse.Namespace) -> list[Result]:
    n = given.n or (5000 if given.quick else 100_000)
    singles, rounds = (100, 1) if given.quick else (2000, given.rounds)
    return [enqueue(on, contestants(given), singles, n, rounds)]


def run_latency(on: Server, given: argparse.Namespace) -> list[Result]:
    return [latency(on, contestants(given), given.seconds or (2 if given.quick else 20))]


MEASUREMENTS: dict[str, Callable[[Server, argparse.Namespace], list[Result]]] = {
    "drain": run_drain,
    "enqueue": run_enqueue,
    "latency": run_latency,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write. Returns the exit code."""
    given = parser().parse_args(argv)
    if unknown := [name for name in given.what if name not in MEASUREMENTS]:
        print(f"bench: {', '.join(unknown)}: no such measurement; known are {', '.join(MEASUREMENTS)}", file=sys.stderr)
        return 2
    results: list[Result] = []
    with server(given.dsn) as on:
        about = {
            "pgsched": {"commit": machine.commit(ROOT.parent)},
            "machine": machine.about(),
            "server": on.about(),
        }
        print(header(about), flush=True)
        for name in given.what or MEASUREMENTS:
            for result in MEASUREMENTS[name](on, given):
                results.append(result)
                print(result.markdown(), flush=True)
                write(given.out, about, results)
    plots.draw(given.out, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
