"""Describe the machine, and measure what processes use of it. Only Linux reports on processes."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psycopg

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Cpu:
    """Processor seconds used so far, and resident bytes now."""

    seconds: float
    rss: int

    @staticmethod
    def of(pid: int) -> Cpu:
        """Return the usage of one process; zero for one that has ended."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return Cpu(0.0, 0)
        # numbered from the third field: 11 and 12 are utime and stime, 13 and 14 the same of ended children
        return Cpu(sum(int(field) for field in fields[11:15]) * TICK_S, int(fields[21]) * PAGE)

    @staticmethod
    def of_tree(pid: int) -> Cpu:
        """Return the usage of a process and its direct children, such as PostgreSQL's backends.

        The parent's usage includes children that have ended.
        """
        every = [Cpu.of(one) for one in (pid, *children(pid))]
        return Cpu(sum(one.seconds for one in every), sum(one.rss for one in every))


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process with one thread; 0 if unknown.

    The scheduler gives nanoseconds where the kernel offers them; otherwise the time is counted in ticks.
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return Cpu.of(pid).seconds


def children(pid: int) -> list[int]:
    """Return the process ids of the direct children of a process."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def about() -> dict[str, str]:
    """Describe the machine and its software."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": f"{os.cpu_count()} x {model()}",
        "memory": f"{memory:.0f} GB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})",
        "libpq": psycopg.pq.version_pretty(psycopg.pq.version()),
        **node(),
        "load before": " ".join(f"{one:.1f}" for one in os.getloadavg()),
    }


def node() -> dict[str, str]:
    """Return the version of Node if it is installed."""
    path = shutil.which("node")
    if path is None:
        return {}
    done = subprocess.run([path, "--version"], check=False, capture_output=True, text=True)
    return {"node": done.stdout.strip().removeprefix("v")} if done.returncode == 0 else {}


def model() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def commit(root: Path) -> str:
    """Return the commit of the measured tree, with a mark if there are uncommitted changes."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10"], check=False, cwd=root, capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"
