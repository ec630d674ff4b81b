"""Memory that is in use, like that of a server that has been up for a while.

A virtual machine may give memory that is free back to its host (free page reporting). A page of it that is needed again
then costs the kernel more than ten times what it costs otherwise, so that a load under which files grow gets slower
after some hundred megabytes, whoever makes it. With `--fill-memory` the page cache takes what is free before each
measurement: with the pages of a hole, which take no room on disk and are dropped for whoever needs memory.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.report import progress

LEFT_MB = 400  # the kernel keeps some free, and reports none of it
STEP = 64 * 2**20
SAY_AFTER_S = 5.0
MEMINFO = Path("/proc/meminfo")


def free_mb() -> int:
    """Memory that nothing uses, not even the page cache."""
    lines = MEMINFO.read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("MemFree:"))


class Hole:
    """A file without contents, read on and on."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._read = 0

    def fill(self) -> None:
        """Let the page cache take what is free, but for LEFT_MB."""
        began, said = time.monotonic(), False
        # a container may use less than there is; and what is read takes the place of some that was read before
        enough = self._read + 2 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        while (free := free_mb()) > LEFT_MB and self._read < enough:
            if not said and time.monotonic() - began > SAY_AFTER_S:
                progress(f"filling memory: {free:,} MB are free")
                said = True
            os.ftruncate(self._file, self._read + STEP)
            while len(os.pread(self._file, 2**20, self._read)) == 2**20:
                self._read += 2**20
        if free > LEFT_MB:
            progress(f"memory is not filled: {free:,} MB are free; PGSCHED_BENCH_TMP must not be a tmpfs, nor limited")


@contextmanager
def hole() -> Iterator[Hole]:
    """One for the time of the block; nothing of it stays."""
    with tempfile.TemporaryFile(prefix="pgsched-bench-", dir=os.environ.get("PGSCHED_BENCH_TMP")) as file:
        yield Hole(file.fileno())
