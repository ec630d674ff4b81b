"""Fill free memory, so that the machine is like a server that has been up for a while.

A virtual machine may give free memory back to its host (free page reporting). When the kernel needs such a page again,
it costs more than ten times as much as otherwise. A load under which files grow then gets slower after some hundred
megabytes, whichever program makes it.

With `--fill-memory` the page cache takes the free memory before each measurement. It is filled with the pages of a
hole: these take no room on disk, and the kernel drops them for any program that needs memory.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.report import log_step

LEFT_MB = 400  # the kernel keeps this much free, and does not report these pages
STEP = 64 * 2**20
SAY_AFTER_S = 5.0
MEMINFO = Path("/proc/meminfo")


def free_mb() -> int:
    """Return the memory that nothing uses, not even the page cache, in MB."""
    lines = MEMINFO.read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("MemFree:"))


class Hole:
    """A file without contents, of which more and more pages are read."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._read = 0

    def fill(self) -> None:
        """Fill the page cache until only LEFT_MB are free."""
        began, said = time.monotonic(), False
        # Stop even if memory stays free: a container may use less than there is, and its new pages replace old ones.
        enough = self._read + 2 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        while (free := free_mb()) > LEFT_MB and self._read < enough:
            if not said and time.monotonic() - began > SAY_AFTER_S:
                log_step(f"filling memory: {free:,} MB are free")
                said = True
            os.ftruncate(self._file, self._read + STEP)
            while len(os.pread(self._file, 2**20, self._read)) == 2**20:
                self._read += 2**20
        if free > LEFT_MB:
            log_step(f"memory is not filled: {free:,} MB are free; PGSCHED_BENCH_TMP must not be a tmpfs, nor limited")


@contextmanager
def hole() -> Iterator[Hole]:
    """Yield a hole; its file is deleted after the block."""
    with tempfile.TemporaryFile(prefix="pgsched-bench-", dir=os.environ.get("PGSCHED_BENCH_TMP")) as file:
        yield Hole(file.fileno())
