"""`jobs-file`: how long `plan`, `apply` and `export` of a file with many jobs take, as processes of their own.

The promises, for 5,000 jobs: `plan` below 5 s, `apply` below 10 s. Each job has a schedule, a zone, and six columns
more; a seventh of them wait for another job, and a tenth have an excluded date.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.report import Result, log_step, median, number
from bench.server import Server
from pgsched.db.schema import migrate

ZONES = ("UTC", "Europe/Berlin", "America/New_York")
STEPS = (
    "plan (all new)",
    "apply (all new)",
    "apply (nothing to change)",
    "plan (all change)",
    "apply (all change)",
    "export",
)


def text_of(jobs: int, timeout_s: int) -> str:
    """Return a file with so many jobs."""
    lines = ["owner: bench", "jobs:"]
    for n in range(jobs):
        schedule = f"{n % 60} {n // 60 % 24} * * *" if n % 10 else f"{n // 10 % 60} * * * *"
        lines += [
            f"  job-{n:05}:",
            f'    schedule: "{schedule}"',
            f"    timezone: {ZONES[n % 3]}",
            "    kind: shell",
            f"    task: ./report.sh {n}",
            f"    timeout: {timeout_s}s",
            f"    queue: q{n % 20}",
            "    tags: [bench, file]",
            "    max_attempts: 5",
            *([f"    after: [job-{n - 1:05}]"] if n % 7 == 1 else []),
            *(['    excluded_dates: ["2026-12-24..2026-12-26: Christmas"]'] if n % 10 == 3 else []),
        ]
    return "\n".join(lines) + "\n"


def took_s(dsn: str, *args: str) -> float:
    """Return how long a command takes, with its start."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pgsched", *args], env=os.environ | {"PGSCHED_DSN": dsn}, check=True, capture_output=True
    )
    return time.perf_counter() - began


def one_round(server: Server, folder: Path, jobs: int) -> dict[str, float]:
    """Return how long each step takes on a fresh database."""
    first, second = folder / "first.yaml", folder / "second.yaml"
    first.write_text(text_of(jobs, 90))
    second.write_text(text_of(jobs, 91))
    with server.database("jobs-file") as dsn:
        migrate.upgrade(dsn)
        commands = (
            ("plan", str(first)),
            ("apply", str(first), "--yes"),
            ("apply", str(first), "--yes"),
            ("plan", str(second)),
            ("apply", str(second), "--yes"),
            ("export", "--owner", "bench"),
        )
        return {step: took_s(dsn, *command) for step, command in zip(STEPS, commands, strict=True)}


def jobs_file(server: Server, jobs: int, rounds: int) -> Result:
    """Report the median and the worst of the rounds."""
    found: list[dict[str, float]] = []
    with TemporaryDirectory() as folder:
        for _ in range(rounds):
            found.append(one_round(server, Path(folder), jobs))
            log_step("jobs-file: " + ", ".join(f"{step} {seconds:.2f} s" for step, seconds in found[-1].items()))
    result = Result("jobs-file", f"A file of {jobs:,} jobs: {rounds} rounds", ["", "median", "worst"])
    for step in STEPS:
        seconds = [one[step] for one in found]
        result.rows.append([step, number(median(seconds), 2, " s"), number(max(seconds), 2, " s")])
        result.data[step] = {"median_s": median(seconds), "worst_s": max(seconds)}
    result.notes.append("each is a process of its own, with its start")
    return result
