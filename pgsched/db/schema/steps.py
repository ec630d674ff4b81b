"""Run the slow steps of a migration before their revision.

Invariant: a change that takes time is a step of its own, may be interrupted, and may be run again.

A step is one file of `migrations/VERSION/before`. No session waits long for a step. An index is built CONCURRENTLY, and
a backfill commits its batches. A strong lock is requested for half a second at a time.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg.conninfo import make_conninfo

from pgsched.db.connection.connect import Connection, DatabaseError, connect
from pgsched.db.connection.dsn import connection_parameters
from pgsched.db.queries import migration
from pgsched.db.schema.revision import LOCKS
from pgsched.db.statements import folder
from pgsched.errors import PgschedError

LOCK_WAIT = "500ms"
RETRIED_SQLSTATES = ("55P03", "57014", "40P01", "40001")  # sqlstates of a lock that was not granted, and of a deadlock
LONGEST_PAUSE_S = 5.0
TELL_EVERY_S = 5.0
BUILT = re.compile(r"^CREATE (?:UNIQUE )?INDEX CONCURRENTLY IF NOT EXISTS (\w+)", re.MULTILINE)
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One step: a file.

    `index`: the index that it builds; None: it builds none.
    `alone`: it cannot be part of a transaction.
    """

    name: str
    text: str
    index: str | None
    alone: bool


def steps(revision: str) -> list[Step]:
    """Return the steps before a revision, in order."""
    files = sorted((folder("migrations") / revision / "before").glob("*.sql"))
    return [step(file) for file in files]


def step(file: Path) -> Step:
    """Read one file as a step."""
    text = file.read_text(encoding="utf-8")
    built = BUILT.search(text)
    return Step(f"{file.parent.parent.name}/{file.stem}", text, built and built[1], bool(built) or "COMMIT;" in text)


def drop_invalid() -> str:
    """Return the script that removes an invalid index, left by an interrupted build."""
    return (folder("migrations") / "drop_invalid.sql").read_text(encoding="utf-8")


def run_step(conn: Connection[Any], one: Step) -> None:
    """Run a step on an autocommit connection.

    No session waits for an index build, so the build itself may wait without limit for its locks.
    """
    conn.execute("SELECT set_config('lock_timeout', %s, false)", [LOCK_WAIT])
    if one.index is not None:
        conn.execute("SELECT set_config('pgsched.index', %s, false)", [one.index])
        conn.execute(drop_invalid().encode())
        conn.execute("SET lock_timeout = 0")
        conn.execute(one.text.encode())
    elif one.alone:
        conn.execute(one.text.encode())
    else:
        with conn.transaction():
            conn.execute(LOCKS[0].encode())
            conn.execute(one.text.encode())


def retry_for_locks(conn: Connection[Any], do: Callable[[], None], name: str, wait_s: float, tell: Tell) -> None:
    """Call `do` again and again while other sessions hold its locks. Raises PgschedError after `wait_s` seconds."""
    until, pause, tries = time.monotonic() + wait_s, 0.25, 0
    while True:
        try:
            return do()
        except DatabaseError as error:
            if error.sqlstate not in RETRIED_SQLSTATES:
                raise
            if time.monotonic() > until:
                raise PgschedError(f"{name} got no lock within {wait_s:.0f} s: {in_the_way(conn)} is in the way; "
                                   "what was done stays, `pgsched migrate` goes on from there") from error  # fmt: skip
        tries += 1
        if tries in (2, 4) or tries % 10 == 0:
            tell(f"{name}: waits for {in_the_way(conn)}")
        time.sleep(pause)
        pause = min(LONGEST_PAUSE_S, pause * 2)


def in_the_way(conn: Connection[Any]) -> str:
    """Describe the sessions that hold locks on our tables, the oldest transaction first."""
    return migration.describe_blocking_session(conn) or "a transaction that has ended by now"


@contextmanager
def turn(conn: Connection[Any], key: int, tell: Tell) -> Iterator[None]:
    """Hold the lock for migrations during the block; wait for another process that migrates.

    The lock is requested again and again, because a waiting statement holds a snapshot. An index build of the other
    process would wait for that snapshot. Any role can take this lock. If its holder may not migrate, the next key is
    tried.
    """
    asked = 0
    while not (row := migration.try_migration_lock(conn, key))["got"]:
        if not row["waits"]:
            key += 1
            continue
        if asked % 50 == 0:
            tell("another process is migrating: waiting for it")
        asked += 1
        time.sleep(0.1)
    try:
        yield
    finally:
        if not conn.closed and not conn.broken:
            conn.execute("SELECT pg_advisory_unlock(%s)", [key])


@contextmanager
def report_index_build(conn: Connection[Any], one: Step, tell: Tell) -> Iterator[None]:
    """Report how far an index build is, every few seconds during the block."""
    if one.index is None:
        yield
        return
    done = threading.Event()
    about = (make_conninfo("", **connection_parameters(conn)), conn.info.backend_pid)
    watcher = threading.Thread(target=report_until_built, args=(*about, one, tell, done), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def report_until_built(dsn: str, pid: int, one: Step, tell: Tell, done: threading.Event) -> None:
    """Report what the server says about the index that session `pid` builds, until `done` is set."""
    while not done.wait(TELL_EVERY_S):
        try:
            with connect(dsn, purpose="migrate") as looking:
                text = migration.describe_index_build(looking, pid)
        except PgschedError:
            continue
        if text is not None and not done.is_set():
            tell(f"{one.name}: {text}")
