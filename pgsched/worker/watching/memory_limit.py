"""The memory limit of a worker (--max-memory).

Invariant: a worker above the limit takes no more runs, lets its handlers end, and ends with its own exit code.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from pgsched.errors import InputError, MemoryReached, PgschedError
from pgsched.worker.supervision.supervisor_link import SWOLLEN

LOOK_S = 1.0
STATM = Path("/proc/self/statm")


def memory_mb() -> float:
    """Return the memory (RSS) of this process without its children, in MB; where that is unknown, its peak."""
    try:
        return int(STATM.read_text().split()[1]) * resource.getpagesize() / (1 << 20)
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / ((1 << 20) if sys.platform == "darwin" else 1 << 10)


def check_memory(most_mb: int | None) -> None:
    """Raise InputError for a limit that would end every worker before its first run."""
    if most_mb is not None and (now_mb := memory_mb()) >= most_mb:
        raise InputError(
            f"max memory: {most_mb} MB is less than the {now_mb:.0f} MB before the first run", "max_memory"
        )


async def watch_memory(most_mb: int, retire: Callable[[str, PgschedError], object]) -> None:
    """Wait until the worker uses more than `most_mb`, then make it retire."""
    while (now_mb := memory_mb()) <= most_mb:  # noqa: ASYNC110 - there is no notification
        await asyncio.sleep(LOOK_S)
    retire(SWOLLEN, MemoryReached(f"the worker took {now_mb:.0f} MB, more than --max-memory {most_mb}"))
