"""A wall clock that a fault can move for chosen processes, with a library (clock.c) that LD_PRELOAD loads.

Invariant: a clock moves only for the processes that are started with its environment. Monotonic time never moves,
because no machine moves it. The library is compiled when a fault needs it.
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
    """Return the path of an installed C compiler, or None."""
    return next(filter(None, map(shutil.which, COMPILERS)), None)


class Clock:
    """The clock of the processes that are started with `environment`.

    Raises RuntimeError if the library cannot be compiled.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.library = compile_library(file.with_suffix(".so"))
        file.write_bytes(struct.pack("l", 0))
        for file_of_clock in (self.file, self.library):
            file_of_clock.chmod(0o755)
        self.environment = {"LD_PRELOAD": str(self.library), "PGSCHED_CHAOS_CLOCK": str(file)}

    def set(self, ahead_s: int) -> None:
        """Set the clock this many seconds ahead of the host's; a negative number sets it back."""
        with self.file.open("r+b") as file, mmap.mmap(file.fileno(), struct.calcsize("l")) as shared:
            shared[:] = struct.pack("l", ahead_s)  # written in place: the processes have mapped this file


def compile_library(library: Path) -> Path:
    """Compile the library to this path, and return the path.

    Raises RuntimeError if there is no C compiler, or if it fails.
    """
    found = compiler()
    if found is None:
        raise RuntimeError(f"no C compiler is installed ({INSTALL})")
    command = [found, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"the clock could not be compiled: {done.stderr.strip()}")
    return library
