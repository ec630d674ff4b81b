"""Temporary folders in which servers live while faults run, each locked by the process that made it.

Invariant: the next process removes the folders of killed processes. Folders of living processes are not touched.
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
    """Make a new folder of this process, and return it.

    Its name begins with `prefix`. Without `parent`, it is in the directory for temporary files.
    """
    fresh = Path(tempfile.mkdtemp(prefix="pgsched-new-", dir=parent)).resolve()
    fresh.chmod(0o755)  # for root, another account runs PostgreSQL and must be able to enter
    lock = os.open(fresh / IN_USE, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Rename only after locking: `sweep` of another process removes unlocked folders with this prefix.
    folder = fresh.rename(fresh.with_name(fresh.name.replace("pgsched-new-", prefix)))
    _locks[folder] = lock
    return folder


def remove_own(folder: Path) -> None:
    """Delete the folder. Its servers must have ended."""
    shutil.rmtree(folder, ignore_errors=True)
    if (lock := _locks.pop(folder, None)) is not None:
        os.close(lock)


def sweep(prefix: str = PREFIX, parent: str | None = None) -> None:
    """Stop the servers of killed processes, and delete their folders."""
    for folder in Path(parent or tempfile.gettempdir()).resolve().glob(f"{prefix}*"):
        with contextlib.suppress(OSError, EmbeddedUnavailable), (folder / IN_USE).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_abandoned(folder)


def remove_abandoned(folder: Path) -> None:
    """Stop the folder's servers, unmount its file systems, and delete it."""
    for started in folder.rglob("postmaster.opts"):
        program = started.read_text().partition(' "')[0]  # the server's program; its arguments are quoted
        Cluster(started.parent, Path(program).parent, server_account()).stop("immediate")
    for place in folder.iterdir():
        if place.is_mount():
            subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)
