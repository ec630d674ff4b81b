"""Where servers live while faults run: temporary folders, each locked by the process that made it.

The rule: what a killed process left is taken away by the next one; what another process uses is not touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from pgsched.db.embedded.cluster import Cluster
from pgsched.db.embedded.server import server_account
from pgsched.errors import EmbeddedUnavailable

PREFIX = "pgsched-chaos-"
IN_USE = "in-use"
_locks: dict[Path, int] = {}


def make(prefix: str = PREFIX, parent: str | None = None) -> Path:
    """A new folder of this process; its name begins with the prefix. The parent is the folder for temporary files."""
    fresh = Path(tempfile.mkdtemp(prefix="pgsched-new-", dir=parent)).resolve()
    fresh.chmod(0o755)  # the account that runs PostgreSQL for root must get through
    lock = os.open(fresh / IN_USE, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # It gets its name only now: under it and without the lock, `sweep` of another process would take it.
    folder = fresh.rename(fresh.with_name(fresh.name.replace("pgsched-new-", prefix)))
    _locks[folder] = lock
    return folder


def remove(folder: Path) -> None:
    """Delete it. Its servers must have ended."""
    shutil.rmtree(folder, ignore_errors=True)
    if (lock := _locks.pop(folder, None)) is not None:
        os.close(lock)


def sweep(prefix: str = PREFIX, parent: str | None = None) -> None:
    """Stop the servers of killed processes, and delete their folders."""
    for folder in Path(parent or tempfile.gettempdir()).resolve().glob(f"{prefix}*"):
        with contextlib.suppress(OSError, EmbeddedUnavailable), (folder / IN_USE).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            clear(folder)


def clear(folder: Path) -> None:
    for started in folder.rglob("postmaster.opts"):
        program = started.read_text().partition(' "')[0]  # of the server; its arguments are quoted
        Cluster(started.parent, Path(program).parent, server_account()).stop("immediate")
    for place in folder.iterdir():
        if place.is_mount():
            subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)
