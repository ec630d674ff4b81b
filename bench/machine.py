"""What the machine is, and what processes use of it. Only Linux tells of processes."""

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
        """One process; nothing for one that is gone."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return Cpu(0.0, 0)
        # fields from the third on: 11 and 12 are utime and stime, 13 and 14 those of children that have ended
        return Cpu(sum(int(field) for field in fields[11:15]) * TICK_S, int(fields[21]) * PAGE)

    @staticmethod
    def of_tree(pid: int) -> Cpu:
        """A process and its direct children (PostgreSQL's backends; ended ones count in their parent)."""
        every = [Cpu.of(one) for one in (pid, *children(pid))]
        return Cpu(sum(one.seconds for one in every), sum(one.rss for one in every))


def cpu_s(pid: int) -> float:
    """Seconds that a process of one thread has used: from the scheduler where it tells, else in ticks; 0 if unknown."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return Cpu.of(pid).seconds


def children(pid: int) -> list[int]:
    """The direct children of a process."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def about() -> dict[str, str]:
    """The machine and what runs on it, in words."""
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
    """The version of Node, where it is installed."""
    path = shutil.which("node")
    if path is None:
        return {}
    done = subprocess.run([path, "--version"], check=False, capture_output=True, text=True)
    return {"node": done.stdout.strip().removeprefix("v")} if done.returncode == 0 else {}


def model() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def commit(root: Path) -> str:
    """The commit of the tree that is measured, with a mark if there are changes beside it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10"], check=False, cwd=root, capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"
