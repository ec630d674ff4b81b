"""Files of the console that outlive its process: the key that signs cookies, and the sessions that were ended.

With the same key, a console that starts again knows its visitors, and accepts the forms on their screens.

Invariant: a file is not used if another user owns it, can read it, or has put a link in its place. Without a folder
that can be written, the key is made for this process alone.
"""

from __future__ import annotations

import math
import os
import stat
import sys
import time
from pathlib import Path
from threading import Lock

from pgsched.web.security.secrets import Session

SIZE = 32
MOST_ENDED = 10_000
ALL_UNTIL = "*"  # stands in place of a session's id for every session that expires up to its instant


def state_folder() -> Path | None:
    """Return the folder for files that outlive the console; None if this user has no place for one."""
    if chosen := os.environ.get("PGSCHED_HOME"):
        return Path(chosen).expanduser()
    if os.geteuid() == 0:
        return Path("/var/lib/pgsched")
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        own = Path.home()
    except RuntimeError:
        return Path(state) / "pgsched" if state.startswith("/") else None
    usual = own / ("Library/Application Support" if sys.platform == "darwin" else ".local/state")
    return (Path(state) if state.startswith("/") else usual) / "pgsched"


def key_of(place: Path | None) -> bytes:
    """Return the key kept in the folder, after making one if there is none.

    Where the folder cannot be used, the key is made for this process alone.
    """
    if place is None:
        return os.urandom(SIZE)
    try:
        if not place.exists():
            place.mkdir(parents=True, exist_ok=True)
            # Other users may enter it and read no key: the embedded server of root runs as one of them.
            place.chmod(0o755)
        if not is_ours(place.stat()):
            return os.urandom(SIZE)
        return read_key(place / "web.key") or write_key(place / "web.key")
    except OSError:
        return os.urandom(SIZE)


def write_key(file: Path) -> bytes:
    """Write a new key to the file and return it; return the key of another process that was faster."""
    key = os.urandom(SIZE)
    mine = file.with_name(f"{file.name}.{os.getpid()}")
    handle = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "wb") as writing:
            writing.write(key)
        try:
            os.link(mine, file)
        except FileExistsError:
            return read_key(file) or key
    finally:
        mine.unlink()
    return key


def read_key(file: Path) -> bytes | None:
    """Return the key in the file; None if there is none, or if another user could know it."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as reading:
        found = os.fstat(reading.fileno())
        key = reading.read(SIZE + 1)
    private = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return key if private and len(key) == SIZE else None


def is_ours(found: os.stat_result) -> bool:
    """Check whether this user owns the folder, and no other user can put files into it."""
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022


class EndedSessions:
    """The sessions that were logged out before they expired. Thread-safe.

    `file`: keeps them ended for later processes; None: for this process alone.

    Invariant: a session that has ended stays ended until it would have expired.

    Of more than MOST_ENDED, the oldest tenth is replaced by one instant. Every session that expires up to then counts
    as ended, so a few people have to log in again.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file, self._lock = file, Lock()
        self._until = read_ended_sessions(file)

    def __contains__(self, session: Session) -> bool:
        until = self._until
        return session.id in until or session.until <= until.get(ALL_UNTIL, 0.0)

    def add(self, session: Session) -> None:
        """End a session now."""
        with self._lock:
            now = time.time()
            known = dict(self._until)
            for name, end in read_ended_sessions(self._file).items():  # another console of this user may have written
                known[name] = max(end, known.get(name, 0.0))
            known[session.id] = session.until
            self._until = bound_ended_sessions({name: end for name, end in known.items() if end > now})
            self._keep()

    def _keep(self) -> None:
        if self._file is None:
            return
        text = "".join(f"{name} {math.ceil(end)}\n" for name, end in self._until.items())
        fresh = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        try:
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "w", encoding="ascii") as writing:
                writing.write(text)
            fresh.replace(self._file)
        except OSError:
            return  # not writable: the sessions have ended for this process only


def bound_ended_sessions(until: dict[str, float]) -> dict[str, float]:
    """Return at most MOST_ENDED ended sessions; ALL_UNTIL stands for those that are left out."""
    if len(until) <= MOST_ENDED:
        return until
    oldest = sorted(until.values())[: len(until) - MOST_ENDED + MOST_ENDED // 10]
    return {name: end for name, end in until.items() if end > oldest[-1]} | {ALL_UNTIL: oldest[-1]}


def read_ended_sessions(file: Path | None) -> dict[str, float]:
    """Return the ended sessions in a file, and when each would have expired; empty for an unreadable file."""
    try:
        lines = [] if file is None else file.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    parts = [line.partition(" ") for line in lines]
    return {name: float(until) for name, _, until in parts if until.isdecimal() and int(until) > time.time()}
