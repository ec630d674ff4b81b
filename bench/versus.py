"""Compare this checkout with another one: `python -m bench.versus OTHER`. Both run in turns on one server.

OTHER is a checkout with its own environment in `.venv` (`git worktree add`, then the install line of the README). Each
round gives both the same work in a fresh database, in changing order: one worker drains runs, a leader turns due jobs
into runs, one process makes single enqueues, and an idle worker starts runs. Costs are CPU seconds of the server and of
the measured process. The work is counted in the database before a cost counts. The last column is the median of the
rounds' ratios, this checkout to the other: below 1 is cheaper.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from bench.server import Server, scalar, server

HERE = Path(__file__).resolve().parents[1]
APP = """
from pgsched import App
app = App("versus")
@app.task(name="nothing")
async def nothing() -> None: ...
@app.task(name="plain")
def plain() -> None: ...
"""
ENQUEUE = """
import sys
from versus_app import nothing
for _ in range(int(sys.argv[1])):
    nothing.enqueue()
"""
OPEN = "SELECT count(*) FROM pgsched.runs WHERE finished_at IS NULL"
SUCCEEDED = "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded'"
MADE = "SELECT count(*) FROM pgsched.runs"
WAITS = "SELECT extract(epoch FROM started_at - created_at)::float8 FROM pgsched.runs WHERE started_at IS NOT NULL"
LIMIT_S = 240


@dataclass
class Checkout:
    """One of the two programs: a folder, in whose `.venv` it is installed."""

    name: str
    folder: Path
    results: dict[str, list[float]] = field(default_factory=dict)

    def command(self, *args: str) -> list[str]:
        return [str(self.folder / ".venv" / "bin" / "python"), *args]

    def environment(self, dsn: str, apps: Path) -> dict[str, str]:
        return {**os.environ, "PGSCHED_DSN": dsn, "PYTHONPATH": os.pathsep.join([str(apps), str(self.folder)])}

    def note(self, what: str, value: float) -> None:
        self.results.setdefault(what, []).append(value)


@dataclass(frozen=True)
class Stage:
    """A fresh, migrated database for one checkout."""

    on: Server
    dsn: str
    checkout: Checkout
    apps: Path
    db: psycopg.Connection

    def run(self, *args: str) -> None:
        """Run a command of the checkout to its end."""
        environment = self.checkout.environment(self.dsn, self.apps)
        subprocess.run(
            self.checkout.command(*args),
            env=environment,
            cwd=self.apps,
            check=True,
            timeout=LIMIT_S,
            stdout=subprocess.DEVNULL,
        )

    @contextmanager
    def running(self, *args: str) -> Iterator[None]:
        """Run a worker or leader during the block."""
        environment = self.checkout.environment(self.dsn, self.apps)
        log = (self.apps / "log").open("ab")
        process = subprocess.Popen(
            self.checkout.command("-m", "pgsched", *args), env=environment, cwd=self.apps, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)
            log.close()

    def until(self, query: str, wanted: int) -> None:
        """Wait until the count is reached. Raises TimeoutError; raises AssertionError if the count is higher."""
        end = time.monotonic() + LIMIT_S
        while (found := int(str(scalar(self.db, query)))) != wanted:
            assert found < wanted or query == OPEN, f"{found} instead of {wanted}"
            if time.monotonic() > end:
                raise TimeoutError(f"{self.checkout.name}: {query} gives {found}, not {wanted}")
            time.sleep(0.05)

    def costs(self, what: str, n: int, work: Callable[[], None]) -> None:
        """Record the CPU microseconds of the server and of our child processes for each of `n` pieces of the work."""
        server_before, ours_before = self.on.cpu(), spent()
        work()
        server_after, ours = self.on.cpu(), spent() - ours_before
        assert server_before is not None and server_after is not None
        used = server_after.seconds - server_before.seconds
        self.checkout.note(f"{what}: server", used / n * 1e6)
        self.checkout.note(f"{what}: process", ours / n * 1e6)
        self.checkout.note(f"{what}: both", (used + ours) / n * 1e6)


def spent() -> float:
    """Return the CPU seconds of child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def stage(on: Server, checkout: Checkout, apps: Path) -> Iterator[Stage]:
    """Yield a fresh database with the checkout's schema."""
    with on.database("versus") as dsn, psycopg.connect(dsn, autocommit=True) as db:
        made = Stage(on, dsn, checkout, apps, db)
        made.run("-m", "pgsched", "migrate")
        yield made


def drain(made: Stage, n: int, task: str) -> None:
    """Let one worker drain `n` runs."""
    made.db.execute("SELECT pgsched.enqueue(%s) FROM generate_series(1, %s)", [task, n])
    made.db.execute("ANALYZE pgsched.runs")

    def work() -> None:
        with made.running("worker", "--app", "versus_app:app", "--no-leader"):
            made.until(OPEN, 0)

    started = time.monotonic()
    made.costs(f"drain {task}", n, work)
    made.checkout.note(f"drain {task}: seconds", time.monotonic() - started)
    made.until(SUCCEEDED, n)


def tick(made: Stage, n: int) -> None:
    """Let a leader make the runs of `n` jobs that are due at once."""
    made.db.execute(
        "INSERT INTO pgsched.jobs (name, task, run_at) SELECT 'j' || n, 'nothing', now() FROM generate_series(1, %s) n",
        [n],
    )

    def work() -> None:
        with made.running("leader"):
            made.until(MADE, n)

    made.costs("tick", n, work)


def enqueue(made: Stage, n: int) -> None:
    """Let one process enqueue `n` runs one after the other."""
    made.costs("enqueue", n, lambda: made.run(str(made.apps / "enqueue.py"), str(n)))
    made.until(MADE, n)


def pick_up(made: Stage, n: int) -> None:
    """Let an idle worker start single runs."""
    with made.running("worker", "--app", "versus_app:app", "--no-leader"):
        for number in range(n):
            made.db.execute("SELECT pgsched.enqueue('nothing')")
            made.until(SUCCEEDED, number + 1)
    waits = [float(row[0]) * 1000 for row in made.db.execute(WAITS.encode()).fetchall()]
    made.checkout.note("pick-up: p50 ms", statistics.median(waits))


def report(ours: Checkout, other: Checkout) -> str:
    """Return a line for each figure: both medians, and the median ratio of the rounds."""
    lines = [f"{'':28}{other.name:>12}{ours.name:>12}{'ratio':>8}  ratios of the rounds"]
    for what, mine in ours.results.items():
        theirs = other.results[what]
        ratios = [a / b if b else float("nan") for a, b in zip(mine, theirs, strict=True)]
        each = " ".join(f"{ratio:.2f}" for ratio in ratios)
        medians = f"{statistics.median(theirs):12.2f}{statistics.median(mine):12.2f}"
        lines.append(f"{what:28}{medians}{statistics.median(ratios):8.3f}  {each}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.versus", description=__doc__)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--n", type=int, default=20_000, help="runs of drain and jobs of tick; a tenth of it is enqueued"
    )
    parser.add_argument("--only", help="of drain, plain, tick, enqueue, pick-up; comma-separated")
    given = parser.parse_args()
    ours, other = Checkout("this", HERE), Checkout("other", given.other.resolve())
    works: dict[str, Callable[[Stage], None]] = {
        "drain": lambda made: drain(made, given.n, "nothing"),
        "plain": lambda made: drain(made, given.n, "plain"),
        "tick": lambda made: tick(made, given.n),
        "enqueue": lambda made: enqueue(made, given.n // 10),
        "pick-up": lambda made: pick_up(made, 100),
    }
    chosen = {name: work for name, work in works.items() if given.only is None or name in given.only.split(",")}
    for checkout in (ours, other):  # without compiled files, each start could compile the program again
        compile_all = checkout.command("-m", "compileall", "-q", str(checkout.folder / "pgsched"))
        subprocess.run(compile_all, check=True, timeout=LIMIT_S)
    with server(None) as on:
        assert on.pid is not None
        apps = Path(f"/proc/{on.pid}/cwd").resolve().parent / "apps"
        apps.mkdir(mode=0o755)
        (apps / "versus_app.py").write_text(APP)
        (apps / "enqueue.py").write_text(ENQUEUE)
        for number in range(given.rounds):
            for name, work in chosen.items():
                for checkout in (ours, other) if number % 2 else (other, ours):
                    with stage(on, checkout, apps) as made:
                        work(made)
                print(f"round {number + 1}: {name} done", file=sys.stderr)
    print(report(ours, other))
    return 0


if __name__ == "__main__":
    sys.exit(main())
