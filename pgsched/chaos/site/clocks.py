"""The rule: a clock is faked for the processes that are started with its environment, and for no other.

libfaketime reads how far a clock is off from a file, so that it can be moved while its processes run. Monotonic time is
never faked: no machine moves that.
"""

from __future__ import annotations

from pathlib import Path

WHERE = ("usr/lib/*/faketime", "usr/lib*/faketime", "usr/local/lib/faketime")


def library() -> Path | None:
    """libfaketime for programs with threads; None: it is not installed (Debian: apt install faketime)."""
    return next((found for where in WHERE for found in Path("/").glob(f"{where}/libfaketimeMT.so.1")), None)


class Clock:
    """The clock of the processes that get `environment`. Raises RuntimeError where libfaketime is missing."""

    def __init__(self, file: Path) -> None:
        found = library()
        if found is None:
            raise RuntimeError("libfaketime is not installed (apt install faketime)")
        self.file = file
        self.set(0)
        self.environment = {
            "LD_PRELOAD": str(found),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",  # or each process would see the clock move at a time of its own
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",  # a server's children would each look for what belongs to another process
        }

    def set(self, ahead_s: int) -> None:
        """From now on the clock shows so many seconds more than the host's; negative: less."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(f"{ahead_s:+d}\n")
        fresh.chmod(0o644)
        fresh.replace(self.file)  # whoever reads it at this moment reads one value or the other
