"""The rule: a clock is moved for the processes that are started with its environment, and for no other.

The library that does it (clock.c) is compiled when a fault needs it, and preloaded. Monotonic time is never moved: no
machine moves that.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")
COMPILERS = ("cc", "gcc", "clang")
INSTALL = "apt install gcc libc6-dev"


def compiler() -> str | None:
    """The C compiler that is installed; None: there is none."""
    return next(filter(None, map(shutil.which, COMPILERS)), None)


class Clock:
    """The clock of the processes that get `environment`. Raises RuntimeError where it cannot be compiled."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.library = compiled(file.with_suffix(".so"))
        file.write_bytes(struct.pack("l", 0))
        for file_of_clock in (self.file, self.library):
            file_of_clock.chmod(0o755)
        self.environment = {"LD_PRELOAD": str(self.library), "PGSCHED_CHAOS_CLOCK": str(file)}

    def set(self, ahead_s: int) -> None:
        """From now on the clock shows so many seconds more than the host's; negative: less."""
        with self.file.open("r+b") as file, mmap.mmap(file.fileno(), struct.calcsize("l")) as shared:
            shared[:] = struct.pack("l", ahead_s)  # the file stays the one that the processes have mapped


def compiled(library: Path) -> Path:
    """The library, made at that path."""
    found = compiler()
    if found is None:
        raise RuntimeError(f"no C compiler is installed ({INSTALL})")
    command = [found, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"the clock could not be compiled: {done.stderr.strip()}")
    return library
