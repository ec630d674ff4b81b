"""Prune at once, on request, while the leader prunes as well; optionally keep the runs in an archive file.

Runs are locked, and so is the mark of counting.

Invariant: a batch is in the archive file, on disk, before its deletion is committed. If it is not committed, its runs
still exist, and the next start removes its lines first. So no run is lost, and none is in the file twice.

The database may refuse to delete a run: a user's trigger, or a user's foreign key to it. The run then stays, and stops
no other: the batch is done again in pieces until that run is alone. Pruning ends early after a hundred refused runs, or
after ten before any run could be deleted.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import Reaction, classify, first_line
from pgsched.db.queries.leader import retention
from pgsched.errors import InputError
from pgsched.leader.pruner import Pruner
from pgsched.leader.rollups import RunCounter

BATCH = 2000
ARCHIVE_BATCH = 200  # batch size with a file: rows and their output go through this process
LINE_START = b'{"id":'  # start of a line: in a jsonb the shortest name comes first
WHOLE_LINE = re.compile(rb'\{"id": ?([0-9]{1,19})[,}](?:.*\}|)\n', re.DOTALL)
PATIENCE_S = 3.0
STEP = 8  # after a piece that fails, the next is an eighth as large; after one that succeeds, eight times as large
FEW, MOST_REFUSED = 10, 100  # refused runs at which pruning ends: before any run was deleted, and after
OF_ROWS = (Reaction.VALUE, Reaction.BUG, Reaction.RETRY)  # errors that may be about a row


@dataclass(frozen=True, slots=True)
class PruningResult:
    """Result of pruning.

    `deleted`: how many runs were deleted.
    `behind_s`: age in seconds of the oldest end that is not counted yet, None if all are.
    `refused`: the runs that the database refused to delete, with the reasons.
    `gave_up`: too many runs were refused, and not all were tried.
    """

    deleted: int
    behind_s: float | None
    refused: dict[int, str] = field(default_factory=dict)
    gave_up: bool = False


class ArchiveFile:
    """A file of JSON lines, one for each archived run, that only one command writes at a time.

    Another command would remove the lines that this one has not committed yet. Raises InputError when the file cannot
    be written.
    """

    def __init__(self, path: str, conn: Connection[Any]) -> None:
        try:
            self._file = open(path, "a+b", opener=open_private)  # noqa: SIM115  held as long as the command runs
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._take_back(conn)
        except BlockingIOError:
            raise InputError(f"archive: another command is writing {path}", "archive") from None
        except OSError as error:
            raise InputError(f"archive: cannot write {path}: {error.strerror}", "archive") from None

    def keep(self, rows: list[Row]) -> None:
        """Write a batch and wait for the disk. Raises InputError where there is no room."""
        try:
            for row in rows:
                self._file.write(row["run"].encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InputError(f"archive: cannot write {self._file.name}: {error.strerror}", "archive") from None

    def size(self) -> int:
        """Return the length of the file in bytes."""
        return os.fstat(self._file.fileno()).st_size

    def cut(self, size: int) -> None:
        """Shorten the file to `size` bytes: the runs of the removed lines still exist."""
        self._file.truncate(size)

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # closing writes the rest, which `keep` may have failed to write
            self._file.close()

    def _take_back(self, conn: Connection[Any]) -> None:
        """Remove half a line at the end, and the lines of runs whose deletion was not committed.

        Raises InputError, and changes nothing, if the file has other content.
        """
        end = self._file.seek(0, io.SEEK_END)
        # one transaction may have a batch for each retention time (Pruner.work)
        for start, line in self._last_lines(end, ARCHIVE_BATCH * len(retention.rules(conn).keeps_s)):
            run_id = parse_run_id(line)
            if run_id is None and (line.endswith(b"\n") or not LINE_START.startswith(line[: len(LINE_START)])):
                raise InputError(f"archive: {self._file.name} holds something else: name a new file", "archive")
            if run_id is not None and not retention.exists(conn, run_id):
                break
            end = start
        self._file.truncate(end)

    def _last_lines(self, end: int, most: int) -> Iterator[tuple[int, bytes]]:
        """Yield at most `most` lines and half a line, from the last one backwards: (start of the line, the line)."""
        for _ in range(most + 1):
            if end == 0:
                return
            start = self._begin_of_line(end - 1)
            self._file.seek(start)
            yield start, self._file.read(end - start)
            end = start

    def _begin_of_line(self, before: int) -> int:
        while before > 0:
            step = min(before, 65_536)
            self._file.seek(before - step)
            found = self._file.read(step).rfind(b"\n")
            if found >= 0:
                return before - step + found + 1
            before -= step
        return 0


def open_private(path: str, flags: int) -> int:
    """Open a file; a new one is readable only for its owner, because it holds arguments and output of runs."""
    return os.open(path, flags, 0o600)


def parse_run_id(line: bytes) -> int | None:
    """Return the id of the run of a line; None if the line is not whole."""
    found = WHOLE_LINE.match(line)  # not parsed as JSON: Python does not read all that PostgreSQL writes
    return int(found[1]) if found else None


def prune_all(conn: Connection[Any], path: str | None = None) -> PruningResult:
    """Count ended runs, then delete all that may go, except those that the database refuses; commit each batch."""
    behind_s = count_all(conn)
    file = None if path is None else ArchiveFile(path, conn)
    try:
        return replace(delete_all(conn, file), behind_s=behind_s)
    finally:
        if file is not None:
            file.close()


def delete_all(conn: Connection[Any], file: ArchiveFile | None) -> PruningResult:
    """Delete all runs that may go."""
    pruner = Pruner(None if file is None else file.keep)
    most = size = BATCH if file is None else ARCHIVE_BATCH
    deleted, refused = 0, dict[int, str]()
    while True:
        before = 0 if file is None else file.size()
        try:
            with conn.transaction():
                gone = pruner.prune_batch(conn, size, list(refused))
        except DatabaseError as error:
            # a commit without an answer may have been done: the next start decides about its lines
            if conn.closed or classify(error) not in OF_ROWS:
                raise
            pruner.restore_position()
            if file is not None:
                file.cut(before)
            if size > 1:
                size = max(1, size // STEP)
                continue
            if pruner.picked is None or not pruner.picked.locked:
                raise
            refused[pruner.picked.numbers[0]] = first_line(error)
            if len(refused) >= (MOST_REFUSED if deleted else FEW):
                return PruningResult(deleted, None, refused, gave_up=True)
        else:
            deleted, size = deleted + gone, min(most, size * STEP)
            if not pruner.more:
                return PruningResult(deleted, None, refused)


def count_all(conn: Connection[Any]) -> float | None:
    """Count ended runs as the leader does; return the age in seconds of those that could not be counted soon."""

    @contextmanager
    def begin() -> Iterator[Connection[Any]]:
        with conn.transaction():
            yield conn

    mine, until = RunCounter(), time.monotonic() + PATIENCE_S
    while True:
        counted = mine.count_batch(conn, begin)
        if not mine.is_incomplete:
            return None
        if not counted and time.monotonic() > until:
            return mine.behind_s
        time.sleep(0 if counted else 0.05)
